// Draws the charts from the two JSON elements of the page. Errors are shown in the page and set
// `data-status` of the body to "failed"; it becomes "drawn" when all charts are.
"use strict";
(() => {
  const problems = [];
  function fail(what) {
    problems.push(String(what));
    document.body.dataset.status = "failed";
    const line = document.getElementById("problem");
    line.textContent = "The charts could not be drawn: " + problems.join("; ");
    line.hidden = false;
  }
  addEventListener("error", event => fail(event.message));
  addEventListener("unhandledrejection", event => fail(event.reason));

  const read = id => JSON.parse(document.getElementById(id).textContent);
  const modes = read("series").modes;
  const byId = id => document.getElementById(id);
  const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // ---- Elements. Untrusted text is only put into text nodes.

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  // Group of buttons, one of which is pressed.
  function choice(options, chosen, onChoose) {
    const buttons = options.map(([value, label]) =>
      make("button", { type: "button", "aria-pressed": value === chosen, onclick: () => {
        buttons.forEach((button, n) => button.setAttribute("aria-pressed", options[n][0] === value));
        onChoose(value);
      } }, label));
    return make("div", { class: "choice", role: "group" }, ...buttons);
  }

  function sample(color, dash, alpha, width) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("width", 18);
    svg.setAttribute("height", 8);
    const line = document.createElementNS(space, "line");
    const set = { x1: 0, x2: 18, y1: 4, y2: 4, "stroke-width": width > 1.5 ? 3 : 2, stroke: color, "stroke-opacity": alpha || 1, "stroke-dasharray": (dash || []).join(" ") };
    Object.entries(set).forEach(([name, value]) => line.setAttribute(name, value));
    svg.append(line);
    return svg;
  }

  const tip = byId("tip");
  function showTip(x, y, head, lines) {
    tip.replaceChildren(make("b", {}, head), ...lines.map(([color, name, value]) => {
      const swatch = make("i", { class: "swatch" });
      swatch.style.background = color || "transparent";
      return make("div", {}, swatch, make("span", {}, name), make("span", {}, value));
    }));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 16 + width > innerWidth ? x - 16 - width : x + 16) + "px";
    tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - height - 4)) + "px";
  }
  const hideTip = () => { tip.hidden = true; };

  // ---- Numbers.

  const digits = value => {
    const size = Math.abs(value);
    return size >= 99.95 || size === 0 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
  };
  function scaled(value, steps) {
    let step = steps[0];
    for (const next of steps) if (Math.abs(value) >= next[0] * 0.9995) step = next;
    return digits(value / step[0]) + " " + step[1];
  }
  const TIMES = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const decimal = unit => [[1, unit], [1e3, "k" + unit], [1e6, "M" + unit], [1e9, "G" + unit], [1e12, "T" + unit]];
  const time = nanos => scaled(nanos, TIMES);
  const seconds = value => scaled(value * 1e9, TIMES);
  const bytesIn = value => {
    const steps = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((unit, n) => [1024 ** n, unit]);
    return short(scaled(value, steps));
  };
  // Unit of an axis, chosen by its largest value. Labels are bare numbers; the axis title has the unit.
  function unitFor(largest, steps) {
    let step = steps[0];
    for (const next of steps) if (largest >= next[0] * 2) step = next;
    return step;
  }
  const plain = value => String(+value.toPrecision(6));
  const short = text => text.replace(/\.0+ /, " ");

  // ---- Line charts.

  const charts = [];
  const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

  // Index of the point nearest to x. Each series has its own x values.
  function nearest(own, x) {
    let low = 0, high = own.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (own[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - own[low - 1] < own[low] - x ? low - 1 : low;
  }

  // Sets the note between the legend and the chart of a figure.
  function say(figure, text) {
    const note = figure.querySelector(".figure-note") || figure.insertBefore(make("p", { class: "figure-note" }), figure.querySelector(".plot"));
    note.textContent = text;
    note.hidden = text === "";
  }

  // lines: { key, label, color, dash, alpha, width, x, y, steps }. Lines with the same key share a legend
  // entry. A stepped line has an additional x value, the end of its last step.
  // about: { xLabel, yLabel, log, xUnit, yUnit, xHead, xRange, yText, details, range, ticks, hooks, extra }.
  function lineChart(figure, lines, about) {
    // Shown first, because hidden elements have no width.
    figure.hidden = false;
    const plot = figure.querySelector(".plot") || figure.appendChild(make("div", { class: "plot" }));
    const legend = figure.querySelector(".legend") || figure.insertBefore(make("div", { class: "legend" }), plot);
    plot.replaceChildren();
    legend.replaceChildren();
    const tables = lines.map(line => [line.x, line.y]);
    const joined = tables.length > 0 ? uPlot.join(tables) : [[]];
    const places = lines.map(line => line.x.map(x => nearest(joined[0], x)));
    const axis = {
      stroke: css("faint"), font: FONT, labelFont: FONT, labelSize: 20, grid: { stroke: css("grid"), width: 1 },
      ticks: { stroke: css("grid"), width: 1, size: 5 },
    };
    const labelled = (unit, splits) => splits.map(value => value === null ? "" : plain(value / unit[0]));
    const moved = u => {
      const { left, top, idx } = u.cursor;
      if (left === undefined || left < 0 || idx === null || idx === undefined) return hideTip();
      const x = u.posToVal(left, "x");
      const area = u.over.getBoundingClientRect();
      const rows = [];
      lines.forEach((line, n) => {
        if (!u.series[n + 1].show || line.x.length === 0) return;
        const near = nearest(line.x, x);
        const at = line.steps && line.x[near] > x ? Math.max(0, near - 1) : near;
        const reach = line.x.length > 1 ? (line.x[line.x.length - 1] - line.x[0]) / line.x.length * 3 : Infinity;
        if (line.y[at] === null || Math.abs(line.x[at] - x) > reach) return;
        const more = about.details ? about.details(line, at) : [];
        rows.push([line.y[at], [[line.color, line.label, about.yText(line.y[at])], ...more]]);
      });
      rows.sort((a, b) => b[0] - a[0]);
      const more = rows.length > 14 ? [["", "and " + (rows.length - 14) + " more", ""]] : [];
      showTip(area.left + left, area.top + top, about.xHead(x), rows.slice(0, 14).flatMap(row => row[1]).concat(more));
    };
    const options = {
      width: plot.clientWidth, height: about.height || 270, legend: { show: false }, padding: [12, 24, 0, 0],
      scales: { x: { time: false, range: about.xRange || ((u, low, high) => [0, high || 1]) }, y: { distr: about.log ? 3 : 1, log: 10, range: about.range } },
      axes: [
        { ...axis, size: 30, label: about.xLabel, space: 70, splits: about.ticks && about.ticks.splits,
          values: about.ticks ? about.ticks.values : (u, splits) => labelled(about.xUnit, splits) },
        { ...axis, label: about.yLabel,
          size: (u, values) => 16 + 7 * Math.max(2, ...(values || []).map(value => (value || "").length)),
          values: about.log ? (u, splits) => splits.map(value => value === null ? "" : short(about.yText(value)))
            : (u, splits) => labelled(about.yUnit, splits) },
      ],
      cursor: {
        drag: { x: true, y: false },
        points: { size: 6 },
        dataIdx: (u, n, index, x) => n === 0 || !lines[n - 1] || lines[n - 1].x.length === 0 ? index
          : places[n - 1][nearest(lines[n - 1].x, x)],
      },
      series: [{}, ...lines.map(line => ({
        label: line.label, stroke: line.color, dash: line.dash, alpha: line.alpha, width: line.width || 1.5, spanGaps: true,
        paths: line.dots ? () => null : line.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: line.dots ? { show: true, size: line.x.length > 64 ? 2.5 : 4, width: 0, fill: line.color }
          : { show: line.x.length === 1, size: 6, fill: line.color },
      }))],
      hooks: { setCursor: [moved], ...(about.hooks || {}) },
    };
    const chart = new uPlot(options, joined, plot);
    chart.over.addEventListener("mouseleave", hideTip);
    for (const key of new Set(lines.map(line => line.key))) {
      const own = lines.map((line, n) => [line, n + 1]).filter(([line]) => line.key === key);
      const button = make("button", { type: "button", "aria-pressed": true, onclick: () => {
        const show = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", show);
        own.forEach(([, n]) => chart.setSeries(n, { show }));
      } }, sample(own[0][0].color, own[0][0].dash, own.length > 1 ? 1 : own[0][0].alpha, own[0][0].width), key);
      legend.append(button);
    }
    if (about.extra) legend.append(about.extra);
    charts.push(chart);
    return chart;
  }

  // ---- Selection.

  const state = { entry: "sum", rate: "bytes", statistic: null, mode: modes.length - 1 };
  const DASH = [6, 4];
  const drawn = {};
  const hasBoth = modes.some(mode => mode.entries[0] && mode.entries[0].dirs.length > 1);

  // Selected entries of a mode: the sum of all jobs, one job, or each job.
  function shown(mode) {
    if (state.entry === "sum") return mode.entries.slice(0, 1);
    if (state.entry === "each") return mode.entries.slice(1);
    const label = state.entry.slice(4);
    return mode.entries.slice(1).filter(entry => entry.label === label);
  }

  // One element per mode, selected entry and direction.
  function directions() {
    const all = [];
    for (const mode of modes) {
      const entries = shown(mode);
      for (const entry of entries) {
        for (const dir of entry.dirs) {
          const name = modes.length > 1 || !hasBoth ? mode.name + (hasBoth ? ", " + dir.dir : "") : dir.dir;
          const label = entries.length > 1 ? name + ", " + entry.label : name;
          all.push({ dir, key: name, label, mode, color: css(mode.name), dash: hasBoth && dir.dir === "read" ? DASH : undefined,
            alpha: entries.length > 4 ? 0.55 : 1, width: entries.length > 4 ? 1 : 1.5 });
        }
      }
    }
    return all;
  }

  const largest = values => values.reduce((most, value) => value > most ? value : most, 0);
  const endOf = all => largest(all.map(({ dir: { flow } }) => flow && flow.t.length > 0
    ? flow.t[flow.t.length - 1] + flow.seconds[flow.seconds.length - 1] / 2 : 0));

  // Maximum number of points of a line drawn in steps. A curve through few points would suggest values
  // that were not measured.
  const STEPS_MAX = 32;
  // Number of requests per point. Fewer than twice as many in a line are too few for a curve.
  const FEW = 16;

  // x and y values of a line over time, for the points that have a value.
  function course(flow, steps, points, value) {
    const y = points.map(value);
    if (!steps || y.length === 0) return { x: points.map(n => flow.t[n]), y, steps };
    const last = points[points.length - 1];
    return { x: [...points.map(n => flow.t[n] - flow.seconds[n] / 2), flow.t[last] + flow.seconds[last] / 2], y: [...y, y[y.length - 1]], steps };
  }

  // Note on the interval of the points, and on short runs and small numbers of requests.
  function intervals(all) {
    const flows = all.map(({ dir }) => dir.flow);
    const middle = flow => [...flow.seconds].sort((a, b) => a - b)[flow.seconds.length >> 1];
    const widths = flows.map(middle);
    const [low, high] = [Math.min(...widths), Math.max(...widths)].map(seconds);
    const width = low === high ? low : low.replace(high.slice(high.indexOf(" ")), "") + " to " + high;
    const ios = flow => flow.ios.reduce((sum, n) => sum + n, 0);
    const length = flow => flow.seconds.reduce((sum, n) => sum + n, 0);
    const few = flows.filter(flow => ios(flow) < 2 * FEW);
    if (few.length > 0) {
      const least = few.reduce((a, b) => ios(a) < ios(b) ? a : b);
      const count = ios(least) === 1 ? "1 request" : ios(least) + " requests";
      const which = few.length === flows.length ? "" : "Some lines: ";
      return which + count + " in " + seconds(length(least)) + ": too few for a curve over time; each step covers " + width + ".";
    }
    const longest = Math.max(...flows.map(length));
    if (longest < 1) return "Run shorter than a second, smoothed: each point covers " + width + ".";
    return "Each point covers " + width + ".";
  }
  const isStepped = all => all.every(({ dir }) => dir.flow.t.length <= STEPS_MAX);

  function drawThroughput() {
    const all = directions().filter(({ dir }) => dir.flow && dir.flow.t.length > 0);
    if (all.length === 0) return;
    const lines = all.map(one => ({ ...one, ...course(one.dir.flow, isStepped(all), one.dir.flow.t.map((_, n) => n),
      n => one.dir.flow[state.rate][n] / one.dir.flow.seconds[n]) }));
    const steps = decimal(state.rate === "bytes" ? "B/s" : "");
    const unit = unitFor(largest(lines.map(line => largest(line.y))), steps);
    const xUnit = unitFor(endOf(all) * 1e9, TIMES);
    lineChart(byId("throughput"), lines, {
      xLabel: "time in " + xUnit[1], xUnit: [xUnit[0] / 1e9, xUnit[1]], xHead: seconds,
      yLabel: state.rate === "bytes" ? unit[1] : (unit[1] ? unit[1] + " " : "") + "IOPS", yUnit: unit,
      yText: value => scaled(value, steps) + (state.rate === "bytes" ? "" : "IOPS"),
      range: (u, low, high) => [0, high > 0 ? high * 1.06 : 1],
    });
    say(byId("throughput"), intervals(all));
    drawn.throughput = lines.length;
  }

  const STATISTICS = [["mean", "mean"], ["p99", "p99"], ["max", "max"]];
  function drawLatency() {
    const all = directions().filter(({ dir }) => dir.flow && dir.flow.t.length > 0);
    if (all.length === 0) return;
    const wanted = state.statistic === "all" ? STATISTICS : STATISTICS.filter(([name]) => name === state.statistic);
    const looks = { mean: [1, 2], p99: [0.8, 1.25], max: [0.35, 1.25] };
    const lines = all.flatMap(one => wanted.map(([name]) => {
      const busy = one.dir.flow.t.map((_, n) => n).filter(n => one.dir.flow[name][n] !== null);
      const [alpha, width] = wanted.length > 1 ? looks[name] : [one.alpha, one.width];
      const named = text => wanted.length === 1 ? text : all.length === 1 ? name : text + ", " + name;
      return { ...one, key: named(one.key), label: named(one.label), alpha, width,
        ...course(one.dir.flow, isStepped(all), busy, n => Math.max(1, one.dir.flow[name][n])) };
    }));
    const xUnit = unitFor(endOf(all) * 1e9, TIMES);
    const titles = { mean: "mean completion latency", p99: "99th percentile", max: "maximum", all: "completion latency" };
    lineChart(byId("latency"), lines, {
      xLabel: "time in " + xUnit[1], xUnit: [xUnit[0] / 1e9, xUnit[1]], xHead: seconds,
      yLabel: titles[state.statistic], log: true, yText: time,
    });
    say(byId("latency"), intervals(all));
    drawn.latency = lines.length;
  }

  // A percentile is placed at -log10 of the fraction above it.
  const PERCENTS = ["0", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999", "99.999999", "99.9999999"];
  const placeOf = percent => percent === "0" ? 0 : -Math.log10(1 - percent / 100);
  function drawPercentiles() {
    const all = directions().filter(({ dir }) => dir.curve);
    if (all.length === 0) return;
    const lines = all.map(one => ({ ...one, x: one.dir.curve.points.map(point => point[0]),
      y: one.dir.curve.points.map(point => Math.max(1, point[1])) }));
    const kinds = { clat: "completion latency", lat: "total latency", slat: "submission latency" };
    lineChart(byId("percentiles"), lines, {
      xLabel: "percentile", yLabel: kinds[all[0].dir.curve.kind], log: true, yText: time,
      xHead: x => "percentile " + +(100 * (1 - 10 ** -x)).toPrecision(Math.min(12, Math.max(3, Math.ceil(x) + 2))),
      xRange: (u, low, high) => [0, Math.max(high, 1)],
      ticks: {
        splits: (u, n, low, high) => PERCENTS.map(placeOf).filter(x => x >= low - 1e-9 && x <= high + 1e-9),
        values: (u, splits) => splits.map(x => PERCENTS.find(percent => Math.abs(placeOf(percent) - x) < 1e-6) || ""),
      },
    });
    drawn.percentiles = lines.length;
  }

  function drawPosition() {
    const mode = modes[state.mode];
    const figure = byId("position");
    if (!mode || !modes.some(mode => mode.positions.length > 0)) return;
    const colors = { write: css(mode.name), read: css("reads"), head: css("ink") };
    const middles = places => places.from.map((from, n) => (from + places.to[n]) / 2);
    const lines = mode.positions.map(places => ({ key: places.name === "head" ? "head of the drive" : places.name + "s",
      label: places.name === "head" ? "head" : "last " + places.name, color: colors[places.name], dots: places.name !== "head", width: 1,
      x: middles(places), y: places.last, places }));
    const low = Math.min(...mode.positions.map(places => Math.min(...places.min)));
    const high = Math.max(...mode.positions.map(places => Math.max(...places.max)));
    const xUnit = unitFor(largest(mode.positions.map(places => places.to[places.to.length - 1] || 0)) * 1e9, TIMES);
    // Draws the touched stripes below the lines. Hiding a line hides its stripes.
    const stripes = u => {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(left, top, width, height);
      u.ctx.clip();
      u.ctx.globalAlpha = 0.3;
      mode.positions.forEach((places, line) => {
        if (!u.series[line + 1].show) return;
        u.ctx.fillStyle = colors[places.name];
        places.stripes.forEach((runs, n) => {
          const x = u.valToPos(places.from[n], "x", true);
          const right = u.valToPos(places.to[n], "x", true);
          for (let run = 0; run < runs.length; run += 2) {
            const y = u.valToPos(Math.min(runs[run + 1], high + (high - low) / 64), "y", true);
            const bottom = u.valToPos(Math.max(runs[run], low - (high - low) / 64), "y", true);
            u.ctx.fillRect(x, y, Math.max(right - x, 1), Math.max(bottom - y, 1));
          }
        });
      });
      u.ctx.restore();
    };
    const inZone = place => "zone " + Math.floor(place).toLocaleString("en") + (place % 1 ? " + " + Math.floor(place % 1 * 100) + "%" : "");
    lineChart(figure, lines, {
      xLabel: "time in " + xUnit[1], xUnit: [xUnit[0] / 1e9, xUnit[1]], xHead: seconds, yLabel: "zone", yUnit: [1, ""],
      yText: inZone, details: ({ places }, at) => places.min[at] === places.max[at] ? []
        : [["", "lowest", inZone(places.min[at])], ["", "highest", inZone(places.max[at])]],
      range: () => { const pad = Math.max((high - low) * 0.04, 0.02); return [Math.max(0, low - pad), high + pad]; },
      hooks: { drawAxes: [stripes] },
      extra: make("span", {}, "dots: last position of each interval; shading: all positions touched in it"),
    });
    drawn.positions = lines.length;
  }

  // ---- Zone map.

  const CONDITIONS = { 0: "conventional", 1: "empty", 2: "implicitly open", 3: "explicitly open", 4: "closed", 13: "read-only",
    14: "full", 15: "offline" };
  // Maximum height of a map in pixels; the second for squares of three pixels and less.
  const MAP_HEIGHTS = [340, 640];
  // Side of a zone's square in pixels: maximum in the map of all zones, maximum if zoomed in, and minimum
  // to show its number.
  const CELL_WHOLE = 22, CELL_PART = 52, CELL_NUMBER = 44;
  // Factor of a zoom step, and minimum number of zones shown.
  const ZOOM = 16, ZONES_MIN = 16;

  // Visible zones and the selected zone. Both are kept when the mode changes.
  const view = { from: 0, to: Infinity, at: null };
  const number = n => n.toLocaleString("en");

  // Condition and fill level of each zone of a mode, expanded from runs.
  function unrolled(mode) {
    const count = mode.zones.reduce((sum, run) => sum + run[0], 0);
    const map = { count, conditions: new Uint8Array(count), fills: new Uint8Array(count), totals: {} };
    let zone = 0;
    for (const [zones, condition, fill] of mode.zones) {
      map.conditions.fill(condition, zone, zone + zones);
      map.fills.fill(fill, zone, zone + zones);
      map.totals[condition] = (map.totals[condition] || 0) + zones;
      zone += zones;
    }
    return map;
  }

  // Facts about a zone, as pairs of name and value.
  function factsOf(mode, map, n) {
    const condition = map.conditions[n];
    const facts = [[CONDITIONS[condition], condition < 2 ? "" : map.fills[n] + "% written"]];
    if (condition !== 0 && mode.zone_capacity && map.fills[n] > 0 && map.fills[n] < 100) {
      facts.push(["about", bytesIn(mode.zone_capacity * map.fills[n] / 100) + " of " + bytesIn(mode.zone_capacity)]);
    }
    if (mode.zone_bytes) facts.push(["starts at", bytesIn(n * mode.zone_bytes)], ["sector", number(n * mode.zone_bytes / 512)]);
    return facts;
  }

  const isPart = condition => condition >= 2 && condition <= 4;

  function scaledContext(canvas, width, height) {
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    return context;
  }

  // Layout of the zones from `from` to `to`, in rows of the largest squares that fit.
  function layout(from, to, count, width) {
    const zones = to - from;
    let cell = zones < count ? CELL_PART : CELL_WHOLE;
    const rows = () => Math.ceil(zones / Math.max(1, Math.floor(width / cell)));
    while (cell > 1 && rows() * cell > MAP_HEIGHTS[cell > 3 ? 0 : 1]) cell -= 1;
    return { from, to, cell, perRow: Math.max(1, Math.floor(width / cell)), height: Math.max(1, rows() * cell) };
  }

  // Draws the zones of a layout. `marked` has the first and last zone of the range being selected.
  function paint(canvas, width, map, plan, colors, marked) {
    const { from, to, cell, perRow, height } = plan;
    canvas.style.height = height + "px";
    const context = scaledContext(canvas, width, height);
    const side = cell - (cell >= 5 ? 1 : 0);
    const place = n => [(n - from) % perRow * cell, Math.floor((n - from) / perRow) * cell];
    for (let n = from; n < to; n += 1) {
      const [x, y] = place(n);
      context.fillStyle = colors[isPart(map.conditions[n]) ? 1 : map.conditions[n]];
      context.fillRect(x, y, side, side);
    }
    for (let n = from; n < to; n += 1) {
      if (!isPart(map.conditions[n])) continue;
      const [x, y] = place(n);
      // Partly written: filled from the bottom in proportion, or by opacity if cells are small.
      context.fillStyle = colors[map.conditions[n]];
      if (side >= 6) {
        const filled = Math.max(1, Math.round(side * map.fills[n] / 100));
        context.fillRect(x, y + side - filled, side, filled);
      } else {
        // Enlarged, because a single cell among a hundred thousand would be invisible.
        const seen = Math.max(side, 3);
        context.globalAlpha = 0.5 + 0.5 * map.fills[n] / 100;
        context.fillRect(x - (seen - side) / 2, y - (seen - side) / 2, seen, seen);
        context.globalAlpha = 1;
      }
    }
    if (cell >= CELL_NUMBER) {
      context.font = "10px system-ui, sans-serif";
      context.textBaseline = "top";
      const [paper, ink] = [css("paper"), css("ink")];
      for (let n = from; n < to; n += 1) {
        const [x, y] = place(n);
        // The background keeps the number readable on every colour.
        context.fillStyle = paper;
        context.fillRect(x + 2, y + 2, context.measureText(number(n)).width + 4, 13);
        context.fillStyle = ink;
        context.fillText(number(n), x + 4, y + 4);
      }
    }
    if (marked) {
      context.fillStyle = css("ink");
      context.globalAlpha = 0.35;
      for (let n = Math.max(from, marked[0]); n <= Math.min(to - 1, marked[1]); n += 1) context.fillRect(...place(n), cell, cell);
      context.globalAlpha = 1;
    }
    if (view.at !== null && view.at >= from && view.at < to) {
      const [x, y] = place(view.at);
      context.strokeStyle = css("ink");
      context.lineWidth = 2;
      const room = cell >= 12 ? -1 : 2;
      context.strokeRect(x - room, y - room, side + 2 * room, side + 2 * room);
    }
  }

  // Draws the whole drive in one line, with a frame around the visible zones.
  function paintStrip(canvas, width, map, plan, colors) {
    const height = 14;
    const context = scaledContext(canvas, width, height);
    context.fillStyle = colors[1];
    context.fillRect(0, 3, width, height - 6);
    let start = 0;
    for (let n = 1; n <= map.count; n += 1) {
      if (n < map.count && map.conditions[n] === map.conditions[start]) continue;
      if (map.conditions[start] !== 1) {
        context.fillStyle = colors[map.conditions[start]];
        context.fillRect(start / map.count * width, 3, Math.max(1, (n - start) / map.count * width), height - 6);
      }
      start = n;
    }
    context.strokeStyle = css("ink");
    context.lineWidth = 2;
    const left = plan.from / map.count * width, right = plan.to / map.count * width;
    context.strokeRect(Math.min(left + 1, width - 5), 1, Math.max(3, right - left - 2), height - 2);
  }

  function drawZones() {
    const mode = modes[state.mode];
    const figure = byId("zones");
    if (!mode || !modes.some(mode => mode.zones.length > 0)) return;
    figure.hidden = false;
    const part = (selector, element) => figure.querySelector(selector) || figure.appendChild(element());
    const legend = part(".legend", () => make("div", { class: "legend" }));
    const tools = part(".zoom", () => make("div", { class: "zoom" }));
    const strip = part(".strip", () => make("canvas", { class: "strip", title: "all zones; click to move the view" }));
    const canvas = part(".map", () => make("canvas", { class: "map", tabindex: 0, role: "application", "aria-describedby": "zone-at",
      "aria-label": "zone map: arrow keys select a zone, plus and minus zoom, Escape shows all zones" }));
    const told = part(".zone-at", () => make("p", { class: "zone-at", id: "zone-at", "aria-live": "polite" }));
    const map = unrolled(mode);
    const { count } = map;
    const colors = {};
    for (const condition of Object.keys(CONDITIONS)) colors[condition] = css("zone-" + condition);
    let plan, width, marked = null;

    const buttons = [
      ["all", "show all zones (Escape)", isWhole => isWhole, () => setView(0, count)],
      ["−", "zoom out (−)", isWhole => isWhole, () => zoom(ZOOM)],
      ["+", "zoom in (+)", () => view.to - view.from <= ZONES_MIN, () => zoom(1 / ZOOM)],
      ["◀", "previous zones (Page Up)", () => view.from === 0, () => move(view.from - view.to)],
      ["▶", "next zones (Page Down)", () => view.to === count, () => move(view.to - view.from)],
    ].map(([label, title, isOff, onclick]) => [make("button", { type: "button", title, "aria-label": title, onclick }, label), isOff]);
    const find = make("input", { type: "number", min: 0, max: count - 1, placeholder: "number", "aria-label": "zone number",
      onchange: () => { if (find.value !== "" && find.value >= 0 && find.value < count) goTo(Math.floor(find.value)); } });
    const where = make("span", {});
    tools.replaceChildren(make("div", { class: "choice", role: "group", "aria-label": "zoom" }, ...buttons.map(([button]) => button)),
      make("label", {}, "zone ", find), where);

    const swatch = condition => {
      const element = make("i", { class: "swatch" });
      element.style.background = colors[condition];
      return element;
    };
    function repaint() { paint(canvas, width, map, plan, colors, marked); }
    function show() {
      hideTip();
      view.to = Math.min(view.to, count);
      view.from = Math.max(0, Math.min(view.from, view.to - 1));
      const isWhole = view.from === 0 && view.to === count;
      width = canvas.clientWidth || figure.clientWidth - 26;
      plan = layout(view.from, view.to, count, width);
      canvas.classList.toggle("near", plan.cell >= CELL_NUMBER || view.to - view.from <= ZONES_MIN);
      strip.hidden = isWhole;
      if (!isWhole) paintStrip(strip, width, map, plan, colors);
      repaint();
      const size = mode.zone_bytes ? " of " + bytesIn(mode.zone_bytes) : "";
      legend.replaceChildren(...Object.keys(map.totals).map(condition =>
        make("span", {}, swatch(condition), number(map.totals[condition]) + " " + CONDITIONS[condition])),
        make("span", {}, number(count) + " zones" + size + ", " + number(plan.perRow) + " per row; open and closed zones are filled up to the write pointer"));
      for (const [button, isOff] of buttons) button.disabled = isOff(isWhole);
      where.textContent = isWhole ? "click or drag on the map to zoom in" : "zones " + number(view.from) + " to " + number(view.to - 1);
      tell();
    }
    function tell() {
      if (view.at === null || view.at >= count) return told.replaceChildren();
      const facts = factsOf(mode, map, view.at).map((pair, i) => pair.filter(text => text !== "").join(i === 0 ? ", " : " "));
      told.replaceChildren(swatch(map.conditions[view.at]), "zone " + number(view.at) + ": " + facts.join("; "));
    }
    function setView(from, to) {
      const zones = Math.min(count, Math.max(ZONES_MIN, Math.round(to - from)));
      view.from = Math.min(count - zones, Math.max(0, Math.round(from)));
      view.to = view.from + zones;
      show();
    }
    function move(zones) { setView(view.from + zones, view.to + zones); }
    // Zooms around the selected zone if it is visible, or around the centre.
    function zoom(factor) {
      const span = (view.to - view.from) * factor;
      const isIn = view.at !== null && view.at >= view.from && view.at < view.to;
      const middle = isIn ? view.at : (view.from + view.to) / 2;
      setView(middle - span / 2, middle + span / 2);
    }
    function goTo(zone) {
      view.at = zone;
      const span = Math.min(view.to - view.from, ZOOM * ZONES_MIN);
      setView(zone - span / 2, zone + span / 2);
    }
    // Moves the selection by keyboard; the view follows.
    function step(zones) {
      view.at = view.at === null || view.at < view.from || view.at >= view.to ? view.from : Math.max(0, Math.min(count - 1, view.at + zones));
      const rows = n => Math.ceil(n / plan.perRow) * plan.perRow;
      if (view.at < view.from) move(-rows(view.from - view.at));
      else if (view.at >= view.to) move(rows(view.at - view.to + 1));
      else { repaint(); tell(); }
    }
    const zoneAt = event => {
      const column = Math.floor(event.offsetX / plan.cell);
      const n = plan.from + Math.floor(event.offsetY / plan.cell) * plan.perRow + column;
      return column < 0 || column >= plan.perRow || n < plan.from || n >= plan.to ? null : n;
    };

    let pressed = null;
    canvas.onpointerdown = event => { pressed = event.button === 0 ? zoneAt(event) : null; };
    canvas.onpointermove = event => {
      const n = zoneAt(event);
      if (n === null) return hideTip();
      if (pressed !== null && n !== pressed) {
        marked = [Math.min(pressed, n), Math.max(pressed, n)];
        repaint();
      }
      if (marked) return showTip(event.clientX, event.clientY, "zones " + number(marked[0]) + " to " + number(marked[1]), []);
      const color = colors[map.conditions[n]];
      showTip(event.clientX, event.clientY, "zone " + number(n), factsOf(mode, map, n).map(([name, value], i) => [i === 0 ? color : "", name, value]));
    };
    canvas.onpointerup = event => {
      const chosen = marked, at = zoneAt(event);
      const isClick = pressed !== null && pressed === at;
      pressed = marked = null;
      if (chosen && !isClick) return setView(chosen[0], chosen[1] + 1);
      if (!isClick) return undefined;
      view.at = at;
      // If single zones are discernible, a click selects one.
      if (plan.cell >= 12) { repaint(); return tell(); }
      return zoom(1 / ZOOM);
    };
    canvas.onpointerleave = canvas.onpointercancel = () => {
      hideTip();
      if (pressed === null) return;
      pressed = marked = null;
      repaint();
    };
    canvas.onkeydown = event => {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const does = {
        ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-plan.perRow), ArrowDown: () => step(plan.perRow),
        PageUp: () => move(view.from - view.to), PageDown: () => move(view.to - view.from), "+": () => zoom(1 / ZOOM), "=": () => zoom(1 / ZOOM), Enter: () => zoom(1 / ZOOM),
        "-": () => zoom(ZOOM), Escape: () => setView(0, count), 0: () => setView(0, count),
        Home: () => step(-count), End: () => step(count),
      }[event.key];
      if (!does) return;
      event.preventDefault();
      does();
    };
    strip.onclick = event => {
      const middle = event.offsetX / strip.clientWidth * count;
      const span = view.to - view.from;
      setView(middle - span / 2, middle + span / 2);
    };
    show();
    drawn.zones = count;
  }

  // ---- Page.

  function draw() {
    hideTip();
    charts.splice(0).forEach(chart => chart.destroy());
    [drawThroughput, drawLatency, drawPercentiles, drawPosition, drawZones].forEach(each => each());
  }

  function choices() {
    const caption = id => byId(id).querySelector("figcaption");
    caption("throughput").append(choice([["bytes", "bandwidth"], ["ios", "IOPS"]], state.rate, value => {
      state.rate = value;
      draw();
    }));
    caption("latency").append(choice([...STATISTICS, ["all", "all three"]], state.statistic, value => {
      state.statistic = value;
      draw();
    }));
    if (modes.length > 1) {
      // The charts of a single mode show the same one.
      const names = modes.map((mode, n) => [n, mode.name]);
      const both = ["position", "zones"].map(id => make("span", { class: "modes" }));
      const fill = () => both.forEach(place => place.replaceChildren(choice(names, state.mode, value => {
        state.mode = value;
        fill();
        draw();
      })));
      fill();
      ["position", "zones"].forEach((id, n) => {
        both[n].style.marginLeft = "auto";
        caption(id).append(both[n]);
      });
    }
    const longest = modes.reduce((most, mode) => mode.entries.length > most.entries.length ? mode : most);
    if (longest.entries.length > 1) {
      const options = [["sum", longest.entries[0].label + " combined"], ["each", "one line per job"],
        ...longest.entries.slice(1).map(entry => ["job " + entry.label, entry.label])];
      const select = make("select", { "aria-label": "jobs to show", onchange: () => { state.entry = select.value; draw(); } },
        ...options.map(([value, label]) => make("option", { value }, label)));
      byId("tools").append(make("span", {}, "Charts show"), select);
      if (longest.left_out > 0) byId("tools").append(make("span", {}, longest.left_out + " more jobs are shown only in the sum"));
      byId("tools").hidden = false;
    }
  }

  // Sums of the charts, for tests.
  function sums() {
    const sum = (mode, name, of) => mode.entries[0].dirs.filter(dir => dir.dir === name && dir.flow)
      .reduce((all, dir) => all + dir.flow[of].reduce((a, b) => a + b, 0), 0);
    return modes.map(mode => ({ mode: mode.name, zones: mode.zones.reduce((all, run) => all + run[0], 0),
      read: { ios: sum(mode, "read", "ios"), bytes: sum(mode, "read", "bytes") },
      write: { ios: sum(mode, "write", "ios"), bytes: sum(mode, "write", "bytes") } }));
  }

  try {
    state.mode = 0;
    state.statistic = directions().length > 2 ? "p99" : "all";
    choices();
    draw();
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    // Print in the light theme.
    addEventListener("beforeprint", () => { document.documentElement.dataset.theme = "light"; draw(); });
    addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; draw(); });
    byId("drawn").textContent = JSON.stringify({ drawn, sums: sums(), problems,
      fetched: performance.getEntriesByType("resource").length });
    if (problems.length === 0) document.body.dataset.status = "drawn";
  } catch (error) {
    fail(error && error.stack || error);
  }
})();
