"use strict";
// Charts are drawn when they come near the view, so that a report with many opens at once; all of them before printing,
// or at once where the address ends in #all. Everything from the run reaches the page as text, never as markup.
(function () {
  const data = JSON.parse(document.getElementById("report-data").textContent);

  // Charts are described for white paper. On a dark page their texts, lines and axes change, and nothing that is data.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const DARK = { "#444444": "#b5bac2", "#cccccc": "#4a4f57", "#000000": "#e0e2e6" };

  function themed(spec) {
    const copy = JSON.parse(JSON.stringify(spec), (_, value) => (dark.matches && DARK[value]) || value);
    if (!dark.matches) return copy;
    const text = { labelColor: "#d5d8dd", titleColor: "#d5d8dd" };
    copy.config = Object.assign({}, copy.config, { background: "#15171b" });
    copy.config.axis = Object.assign({}, copy.config.axis, text,
      { gridColor: "#2f343b", domainColor: "#7b818a", tickColor: "#7b818a" });
    copy.config.legend = Object.assign({}, copy.config.legend, text);
    copy.config.title = Object.assign({}, copy.config.title, { color: "#d5d8dd", subtitleColor: "#a3a9b3" });
    copy.config.view = Object.assign({}, copy.config.view, { stroke: "#3a3f47" });
    return copy;
  }

  function drawChart(holder) {
    if (holder.dataset.drawn) return;
    holder.dataset.drawn = "1";
    const spec = themed(data.charts[holder.dataset.chart]);
    spec.datasets = {};
    for (const name of spec.usermeta.datasets) spec.datasets[name] = data.datasets[name];
    const options = {
      renderer: "svg",
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: holder.dataset.file,
    };
    window.vegaEmbed(holder, spec, options).then(
      (drawn) => { holder.dataset.done = "1"; holder.embedded = drawn; },
      (error) => {
        holder.textContent = "This chart could not be drawn: " + error.message;
        window.reportErrors.push(String(error.message));
      });
  }

  const holders = Array.from(document.querySelectorAll(".chart"));
  // A chart takes the width there is, and what is folded has none.
  const drawAll = () => holders.forEach((holder) => {
    for (let part = holder.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
    drawChart(holder);
  });
  if (location.hash === "#all" || !("IntersectionObserver" in window)) {
    drawAll();
  } else {
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) drawChart(entry.target);
    }, { rootMargin: "800px" });
    holders.forEach((holder) => watcher.observe(holder));
    window.addEventListener("beforeprint", drawAll);
  }

  dark.addEventListener("change", () => {
    for (const holder of holders.filter((one) => one.embedded)) {
      holder.embedded.finalize();
      delete holder.dataset.drawn;
      drawChart(holder);
    }
  });

  const PAGE = 200;

  function makeTable(box) {
    const table = data.tables[box.dataset.table];
    const words = table.words;
    const text = (row, i) => {
      const cell = row[i];
      if (cell === null) return "";
      return table.columns[i].word ? words[cell] : String(cell);
    };
    const lower = table.rows.map((row) => row.map((_, i) => text(row, i)).join(" ").toLowerCase());
    let order = table.rows.map((_, i) => i);
    let shown = order;
    let limit = PAGE;
    let sorted = { column: -1, down: false };

    const tools = document.createElement("div");
    tools.className = "tools";
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter: words that must all occur, e.g. ccl allreduce";
    filter.setAttribute("aria-label", "filter");
    const count = document.createElement("span");
    count.className = "dim";
    const copy = document.createElement("button");
    copy.textContent = "copy";
    tools.append(filter, copy, count);

    const scroll = document.createElement("div");
    scroll.className = "scroll";
    const element = document.createElement("table");
    element.className = "cards";
    const head = element.createTHead().insertRow();
    const body = element.createTBody();
    scroll.append(element);
    const more = document.createElement("button");
    more.className = "more";
    more.textContent = "show more";
    box.append(tools, scroll, more);

    table.columns.forEach((column, i) => {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      button.textContent = column.name;
      if (!column.word) cell.className = "n";
      button.addEventListener("click", () => sortBy(i));
      cell.append(button);
      head.append(cell);
    });

    function render() {
      body.replaceChildren();
      for (const at of shown.slice(0, limit)) {
        const line = body.insertRow();
        table.columns.forEach((column, i) => {
          const cell = line.insertCell();
          cell.textContent = text(table.rows[at], i);
          cell.dataset.label = column.name;
          if (!column.word) cell.className = "n"; else if (column.wide) cell.className = "wrap";
        });
      }
      more.hidden = shown.length <= limit;
      count.textContent = shown.length === table.rows.length ? shown.length + " rows" : shown.length + " of " + table.rows.length + " rows";
    }

    function apply() {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = order.filter((at) => wanted.every((word) => lower[at].includes(word)));
      limit = PAGE;
      render();
    }

    function sortBy(i) {
      sorted = { column: i, down: sorted.column === i && !sorted.down };
      const word = table.columns[i].word;
      const sign = sorted.down ? -1 : 1;
      order.sort((a, b) => {
        const x = table.rows[a][i], y = table.rows[b][i];
        if (x === null || y === null) return (x === null) - (y === null);  // missing last, either way
        if (word) return sign * words[x].localeCompare(words[y], undefined, { numeric: true });
        return sign * (x - y);
      });
      Array.from(head.cells).forEach((cell, at) => {
        if (at === i) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
        else cell.removeAttribute("aria-sort");
      });
      apply();
    }

    copy.addEventListener("click", async () => {
      const cell = (value) => value.replace(/[\t\r\n]+/g, " ");  // one cell stays one cell where it is pasted
      const lines = [table.columns.map((column) => cell(column.name)).join("\t")];
      for (const at of shown) lines.push(table.columns.map((_, i) => cell(text(table.rows[at], i))).join("\t"));
      const content = lines.join("\n");
      try {
        await navigator.clipboard.writeText(content);
      } catch {
        // A page opened from a file may not use the clipboard's interface: the old way still works.
        const area = document.createElement("textarea");
        area.value = content;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      copy.textContent = "copied " + shown.length + " rows";
      setTimeout(() => { copy.textContent = "copy"; }, 2000);
    });
    filter.addEventListener("input", apply);
    more.addEventListener("click", () => { limit += 5 * PAGE; render(); });
    render();
  }

  document.querySelectorAll(".table").forEach(makeTable);
  document.documentElement.dataset.ready = "1";
})();
