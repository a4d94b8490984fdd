"use strict";
(() => {
  const model = JSON.parse(document.getElementById("model").textContent);
  const word = i => model.words[i];
  const requests = (model.requests || []).map(([of, asked, received, executed, answered, ...rest]) => [word(of), word(asked), received, executed, answered, ...rest.map(word)]);
  const decisions = (model.decisions || []).map(([t, by, key, known, action]) => [t, word(by), word(key), known, word(action)]);
  const changes = (model.changes || []).map(([t, by, object, done, fields]) => [t, word(by), word(object), word(done), fields && fields.map(f => f.map(word))]);
  const behind = new Map(model.behind || []);
  const table = document.getElementById("table");
  const rows = [...table.querySelectorAll("tbody tr")];
  const board = document.getElementById("board"), svg = document.getElementById("lanes");
  const cursor = document.getElementById("cursor"), detail = document.getElementById("detail");
  const cell = (row, i) => row.cells[i].textContent;
  const time = row => parseFloat(cell(row, 1)) * 1000;
  let chosen = null;

  // place is where a time is on the axis, and timeAt the other way round.
  const between = (from, to, v) => {
    let i = from.findIndex(x => x >= v);
    if (i < 0) return to[to.length - 1];
    if (i === 0 || from[i] === v) return to[i];
    return to[i - 1] + (v - from[i - 1]) / (from[i] - from[i - 1]) * (to[i] - to[i - 1]);
  };
  let zoom = 1;
  const place = t => zoom * between(model.times, model.places, t);
  const timeAt = x => between(model.places, model.times, x / zoom);

  const element = (name, text, parent) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (parent) parent.append(e);
    return e;
  };
  const facts = (title, pairs) => {
    if (!pairs.length) return;
    element("h3", title, detail);
    const t = element("table", undefined, detail);
    t.className = "detail";
    for (const [name, value, untrue] of pairs) {
      const row = element("tr", undefined, t);
      if (untrue) row.className = "untrue";
      element("th", name, row).scope = "row";
      element("td", value, row);
    }
  };
  const seconds = ms => ms < 0 ? "never" : (ms / 1000).toFixed(3) + " s";

  // explain says what an effect changed, what its process had decided, and what the
  // schedule did to it meanwhile.
  const explain = (row, at) => {
    const actor = cell(row, 6), what = cell(row, 5);
    if (!actor) return;
    for (const [t, by, object, done, fields] of changes) {
      if (Math.abs(t - at) > 0.0005 || by !== actor || !what.includes(object)) continue;
      facts("What changed in " + object, fields ? fields.map(([path, was, is]) => [path, (was || "nothing") + " \u2192 " + (is || "nothing")]) : [[object, done]]);
    }
    const decision = decisions[behind.get(Number(cell(row, 0)))];
    if (!decision) return;
    const [t, , key, known, action] = decision;
    facts("What " + actor + " had decided", [["at", seconds(t)], ["about", key], ["action", action],
      ...Object.entries((model.facts || [])[known] || {}).map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)])]);
    const before = rows.slice(0, rows.indexOf(row) + 1).filter(r => cell(r, 3) === "deviated" && (cell(r, 6) === actor || cell(r, 6).startsWith(actor + ".")));
    if (before.length) facts("How the schedule left its default before that", before.slice(-3).map(r => [seconds(time(r)), cell(r, 5)]));
  };

  // show says what was true and what was believed when an event had just happened.
  const show = row => {
    const at = time(row), host = cell(row, 4);
    detail.textContent = "";
    facts(cell(row, 0) + ": " + cell(row, 3), [["at", seconds(at)], ["layer", cell(row, 2)], ["host", host], ["what", cell(row, 5)], ["by", cell(row, 6)]].filter(p => p[1]));
    const commanded = /^bmc \S+ (\S+)$/.exec(cell(row, 5)), bmc = commanded ? commanded[1] : /^bmc/.test(cell(row, 3)) && host;
    for (const [of, asked, received, executed, answered, answer, actual, rules] of requests) {
      if (of === bmc && [received, executed, answered].some(t => Math.abs(t - at) < 0.5)) {
        facts("The exchange with the BMC", [["asked", asked], ["received", seconds(received)], ["executed", seconds(executed)],
          ["answered", seconds(answered)], ["truly", actual], ["answer", answer], ["bent by", rules]].filter(p => p[1]));
      }
    }
    explain(row, at);
    const groups = [...new Set(model.lanes.map(l => l.group))];
    groups.sort((a, b) => (b === host) - (a === host));
    for (const group of groups) {
      const now = [];
      for (const lane of model.lanes.filter(l => l.group === group)) {
        const band = (lane.bands || []).findLast(b => b[0] <= at && (at < b[1] || b[1] === model.times[model.times.length - 1]));
        if (band) now.push([lane.name, word(band[2]), band[3]]);
      }
      facts(group, now);
    }
  };

  // point moves the cursor.
  const point = x => {
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
  };

  const choose = (row, scroll, quietly) => {
    if (!row) return;
    if (chosen) { chosen.classList.remove("chosen"); chosen.removeAttribute("aria-current"); }
    chosen = row;
    row.classList.add("chosen");
    row.setAttribute("aria-current", "true");
    const x = place(time(row));
    point(x);
    if (x < board.scrollLeft || x > board.scrollLeft + board.clientWidth - 200) board.scrollLeft = x - board.clientWidth / 2;
    // The moment stands beside the lanes: as long as those are in view, nobody has to go to the table.
    if (scroll && board.getBoundingClientRect().bottom < innerHeight / 4) row.scrollIntoView({ block: "nearest" });
    show(row);
    if (!quietly && location.hash !== "#" + row.id) history.replaceState(null, "", "#" + row.id);
  };

  const step = (direction, same) => {
    let i = chosen ? rows.indexOf(chosen) : (direction > 0 ? -1 : rows.length);
    const actor = chosen && cell(chosen, 6);
    do i += direction; while (rows[i] && (rows[i].hidden || same && cell(rows[i], 6) !== actor));
    choose(rows[i], true);
  };

  // fit shows of the texts of a drawing those that have room: a band's within the part of the band that is in view, others
  // where no text is yet. None is cut at the left edge.
  const zoomOf = drawing => drawing === svg ? zoom : 1;
  // Those nearest to where the promise broke, or to the end, tell most.
  const last = Math.max(...model.lanes.flatMap(l => l.broke || []), 0) || Infinity;
  const rank = t => t.matches(".always") ? -Infinity : last === Infinity ? -t.dataset.x : Math.abs(t.dataset.x - last);
  const fit = drawing => {
    for (const group of drawing.querySelectorAll("g")) {
      const texts = [...group.children].filter(e => e.localName === "text");
      if (!texts.length) continue;
      const taken = [], edge = drawing.parentElement.scrollLeft;
      const show = text => {
        const middle = text.classList.contains("gap"), wide = text.textContent.length * 6.7 + 6, start = text.dataset.x * zoomOf(drawing);
        const end = start + text.dataset.room * zoomOf(drawing), x = end > edge ? Math.max(start, edge) : start;
        const from = middle ? x - wide / 2 : x, room = end - x, cut = from < edge && edge < from + wide;
        const shown = room ? wide + 4 < room : !cut && (text.matches(".always") || taken.every(([a, b]) => from + wide <= a || b <= from));
        text.setAttribute("x", x + (middle || text.matches(".tick") ? 0 : text.matches(".key") ? 8 : room ? 5 : 3));
        text.style.display = shown ? "" : "none";
        if (shown) taken.push([from, from + wide]);
      };
      texts.forEach(t => t.dataset.x ??= t.getAttribute("x"));
      if (drawing === svg) texts.sort((a, b) => rank(a) - rank(b));
      texts.forEach(show);
    }
  };

  // layOut puts the lanes that are shown below each other, as wide as the zoom says.
  const headings = [...board.querySelectorAll(".labels > .group, .labels > .label")], lanes = [...svg.querySelectorAll("[data-lane]")];
  const wide = parseFloat(svg.getAttribute("width"));
  const layOut = () => {
    const unfolded = board.classList.contains("unfolded"), ends = [];
    let y = document.querySelector(".labels .axis").offsetHeight, i = 0;
    for (const heading of headings) {
      const shown = unfolded || !heading.classList.contains("quiet");
      if (heading.classList.contains("group")) { y += shown ? heading.offsetHeight : 0; continue; }
      const lane = model.lanes[i];
      lane.y = shown ? y + 12 : -99;
      lanes[i++].setAttribute("transform", `translate(0 ${y})`);
      if (!shown) continue;
      for (const x of lane.broke || []) ends.push([x * zoom, y + 12]);
      y += heading.offsetHeight;
    }
    svg.setAttribute("height", y + 8);
    svg.setAttribute("width", wide * zoom);
    for (const g of svg.querySelectorAll(".wide")) g.setAttribute("transform", `scale(${zoom} 1)`);
    // What broke the promise is joined along the edge of a lane, where no text is.
    ends.sort((a, b) => a[0] - b[0]);
    const [a, b] = [ends[0], ends[ends.length - 1]];
    document.getElementById("arc").setAttribute("d", ends.length > 1 ? `M${a[0]} ${a[1]}V${b[1] + 11}H${b[0]}V${b[1]}` : "");
    document.getElementById("ends").innerHTML = ends.map(([x, y]) => `<circle cx="${x}" cy="${y}" r="5"/>`).join("");
    document.querySelectorAll(".board > svg").forEach(fit);
    if (chosen) point(place(time(chosen)));
  };
  for (const scrolled of document.querySelectorAll(".board")) {
    let due = 0;
    scrolled.addEventListener("scroll", () => { due ||= requestAnimationFrame(() => { due = 0; fit(scrolled.querySelector("svg")); }); });
  }
  const closer = document.getElementById("in"), farther = document.getElementById("out"), unfold = document.getElementById("unfold");
  const zoomTo = z => {
    const middle = chosen ? time(chosen) : timeAt(board.scrollLeft + board.clientWidth / 2);
    zoom = Math.min(4, Math.max(1, z));
    closer.disabled = zoom === 4;
    farther.disabled = zoom === 1;
    layOut();
    board.scrollLeft = place(middle) - board.clientWidth / 2;
  };
  closer.addEventListener("click", () => zoomTo(zoom * 2));
  farther.addEventListener("click", () => zoomTo(zoom / 2));
  if (unfold) unfold.addEventListener("click", () => {
    unfold.setAttribute("aria-pressed", String(board.classList.toggle("unfolded")));
    layOut();
  });

  // under is the lane and the time that the pointer is at.
  const under = event => {
    const box = svg.getBoundingClientRect();
    return [model.lanes.find(l => Math.abs(l.y - event.clientY + box.top) <= 12), timeAt(event.clientX - box.left)];
  };
  svg.addEventListener("pointermove", event => {
    const [lane, at] = under(event);
    const band = lane && (lane.bands || []).find(b => b[0] <= at && at < b[1]);
    board.title = band ? word(band[2]) + ", " + seconds(band[0]) + " to " + seconds(band[1]) : "";
  });
  svg.addEventListener("click", event => {
    const [lane, at] = under(event);
    let near = lane && lane.marks && lane.marks.length ? lane.marks.map(s => rows[s - 1]) : rows;
    near = near.filter(r => !r.hidden);
    choose(near.reduce((a, b) => a && Math.abs(time(a) - at) <= Math.abs(time(b) - at) ? a : b, null), true);
  });
  table.addEventListener("click", event => choose(event.target.closest("tbody tr"), false));
  document.addEventListener("keydown", event => {
    if (event.target.matches("input, select, textarea, pre") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowRight" || event.key === "j") step(1, event.shiftKey);
    else if (event.key === "ArrowLeft" || event.key === "k") step(-1, event.shiftKey);
    else if (event.key === "+") zoomTo(zoom * 2);
    else if (event.key === "-") zoomTo(zoom / 2);
    else if (event.key === "/") document.getElementById("find").focus();
    else return;
    event.preventDefault();
  });

  const form = document.getElementById("filter"), found = document.getElementById("found");
  const sieve = () => {
    const text = form.querySelector("#find").value.toLowerCase();
    const want = [[4, "host"], [2, "layer"], [6, "actor"]].map(([i, id]) => [i, form.querySelector("#" + id).value]).filter(w => w[1]);
    let n = 0;
    for (const row of rows) {
      row.hidden = want.some(([i, value]) => cell(row, i) !== value) || text && !row.textContent.toLowerCase().includes(text);
      n += !row.hidden;
    }
    found.textContent = n === rows.length ? "" : n + " of " + rows.length;
  };
  form.addEventListener("input", sieve);
  form.addEventListener("submit", event => event.preventDefault());

  const copy = document.getElementById("copy");
  if (copy) copy.addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents(document.getElementById("replay"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
    copy.textContent = "Copied";
  });

  layOut();
  const follow = () => {
    const row = /^#e[0-9]+$/.test(location.hash) && document.getElementById(location.hash.slice(1));
    if (row) choose(row, true);
  };
  addEventListener("hashchange", follow);
  if (location.hash) follow();
  else if (model.marked) choose(rows[model.marked[1] - 1], false, true);
})();
