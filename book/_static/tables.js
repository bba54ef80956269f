// Above each table inside an element with data-filters: a choice for each column that it names, and a field for words.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll("[data-filters]")) {
    addFilters(place, place.querySelector("table"), place.dataset.filters.split(","));
  }
  for (const table of document.querySelectorAll("table.wrapped")) {
    nameCells(table);
  }
  for (const cell of document.querySelectorAll(".bd-article table td")) {
    cell.classList.toggle("number", /^[-+−±<>~≈×x\d.,e\s%]{1,16}$/.test(cell.textContent));
  }
  for (const wide of document.querySelectorAll("table, figure img, p > img, .highlight pre, div.math")) {
    fade(wide.closest(".output, .pst-scrollable-table-container, figure, pre, div.math, p"));
  }
});

// What scrolls sideways says so until its end is in sight.
function fade(place) {
  const update = () => {
    place.classList.toggle("goes-on", place.scrollWidth - place.clientWidth - place.scrollLeft > 2);
  };
  if (place) {
    place.addEventListener("scroll", update);
    new ResizeObserver(update).observe(place);
  }
}

// Each cell says the name of its column, lines of which are parted by semicolons, and a narrow page shows it beside it.
function nameCells(table) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll("br").forEach((line) => line.replaceWith("; "));
    return copy.textContent.trim();
  });
  for (const row of table.tBodies[0].rows) {
    heads.forEach((name, place) => name && (row.cells[place].dataset.name = name));
  }
}

function addFilters(place, table, names) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows];
  const form = document.createElement("form");
  form.className = "filters";
  const choices = names.map((name) => {
    const column = heads.indexOf(name);
    return { column, select: addChoice(form, name, [...new Set(rows.map((row) => row.cells[column].textContent))]) };
  });
  const words = Object.assign(document.createElement("input"), { type: "search" });
  form.append(labelled("words", words));
  const count = document.createElement("output");
  form.append(count);

  const update = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const chosen = choices.every(({ column, select }) => !select.value || row.cells[column].textContent === select.value);
      row.hidden = !(chosen && wanted.every((word) => text.includes(word)));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length}`;
  };
  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
  place.prepend(form);
}

function addChoice(form, name, values) {
  const select = document.createElement("select");
  select.append(new Option("all", ""));
  for (const value of values.filter(Boolean)) {
    select.append(new Option(value, value));
  }
  form.append(labelled(name, select));
  return select;
}

function labelled(name, field) {
  field.setAttribute("aria-label", name); // the label's own text would hold the choices, too
  const label = document.createElement("label");
  label.append(`${name} `, field);
  return label;
}
