"""SQuAD 1.1 as retrieval: of the sentence that answers (ReQA: Ahmad 2019; Chang 2020, section 4.1), or its passage."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from retlib.data.collection import Collection, hash_position
from retlib.data.datasets import register
from retlib.data.datasets._passages import asked
from retlib.data.datasets._reading import sentence_spans
from retlib.data.datasets._reqa import Passage, Question, reqa
from retlib.data.datasets.catalogue import damaged, locate, provenance

FILE = "squad/train-v1.1.json"
# What a dense run on a laptop can bear.
SMALL = 20_000


@register("squad")
def load_squad() -> Collection:
    """All of the training file: candidates are its (sentence, passage) pairs.

    Sentences are those of `quick_sentences`; relevant is the one that holds the answer
    where `answer_start` says. In the copy that was rebuilt from the explorer pages this is
    the first occurrence of the answer: 10.8 % of its answers stand in their passage more
    than once (`ambiguous`), 9.4 % in more than one sentence.
    Of its 87,599 questions 255 repeat another's text and 95 have an answer that runs over
    the end of a sentence; 87,249 questions and 90,604 candidates are left. (A splitter
    that knows no abbreviations gives 94 thousand.)
    """
    return reqa("squad", _read(locate("squad", FILE)), provenance("squad"))


@register("squad-small")
def load_small() -> Collection:
    """Whole articles of `squad`, chosen by a hash of their titles, with about 20,000 candidates."""
    passages = list(_read(locate("squad", FILE)))
    sizes = Counter()
    for passage in passages:
        sizes[passage.article] += len(passage.spans)
    chosen, size = set(), 0
    for article in sorted(sizes, key=hash_position):
        if size >= SMALL:
            break
        chosen.add(article)
        size += sizes[article]
    return reqa("squad-small", (p for p in passages if p.article in chosen), provenance("squad"))


@register("squad-passages")
def load_passages() -> Collection:
    """All questions of the training file, with its paragraphs as candidates.

    18,896 paragraphs, of which five repeat another's text; 87,599 questions, of which 255 do.
    """
    return asked("squad-passages", _read(locate("squad", FILE)), provenance("squad"))


def _read(path: Path) -> Iterator[Passage]:
    try:
        articles = json.loads(path.read_bytes())["data"]
    except ValueError as error:  # not UTF-8, or not JSON
        raise damaged("squad", path, getattr(error, "lineno", None), str(error)) from error
    except (KeyError, TypeError) as error:
        raise damaged("squad", path, None, "no `data` with articles") from error
    for number, article in enumerate(articles):
        try:
            yield from _passages(article)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            problem = f"article {number} does not have `title` and `paragraphs` as SQuAD 1.1 does ({error!r})"
            raise damaged("squad", path, None, problem) from error


def _passages(article: dict) -> list[Passage]:
    name = article["title"]
    title = unquote(name).replace("_", " ")
    found = []
    for paragraph in article["paragraphs"]:
        context = paragraph["context"]
        questions = tuple(_question(context, entry) for entry in paragraph["qas"])
        found.append(Passage(name, title, context, tuple(sentence_spans(context)), questions))
    return found


def _question(context: str, entry: dict) -> Question:
    answer = entry["answers"][0]
    question = Question(entry["question"].strip(), answer["answer_start"], answer["text"])
    if not question.answer or not context.startswith(question.answer, question.start):
        raise ValueError(f"the answer of question {entry['id']} is not where it is said to be")
    return question
