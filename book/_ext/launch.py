"""Sphinx extension: buttons that open a chapter's notebook on Binder or Colab.

Both fetch the notebook from the repository, so that there are buttons only where its address is known, such as
``https://github.com/OWNER/NAME``: from `$RETLIB_REPOSITORY`, or from `repository: url` in `_config.yml`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from retlib.workflow.notebooks import pages

BUTTONS = {
    "notebook_interface": "jupyterlab",
    "binderhub_url": "https://mybinder.org",
    "colab_url": "https://colab.research.google.com",
}


def add_buttons(app: Sphinx, config: Config) -> None:
    """Give the theme the repository's address and the services that open notebooks from it."""
    address = os.environ.get("RETLIB_REPOSITORY") or config.html_theme_options.get("repository_url")
    if address:
        config.html_theme_options = {
            **config.html_theme_options,
            "repository_url": address.rstrip("/"),
            "use_repository_button": True,
            "launch_buttons": BUTTONS,
        }


def open_template(app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """Let the buttons of a page that is made of a template open the template."""
    made = pages(Path(app.confdir)).get(Path(page).name)
    for button in (button for group in context.get("header_buttons", ()) for button in group.get("buttons", ())):
        if made and "url" in button:
            button["url"] = button["url"].replace(f"{page}.ipynb", f"notebooks/{made.notebook.name}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension."""
    app.connect("config-inited", add_buttons)
    app.connect("html-page-context", open_template, priority=900)  # after the theme has made its buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}
