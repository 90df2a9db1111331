// What a timeline looks like: rows of bars on a canvas, what a rank does above what is sent, a time axis below. `view` is {from, to} in seconds.
class TimelineDrawing {
  constructor(figure) {
    this.figure = figure;
    this.canvas = figure.querySelector('canvas');
    const data = JSON.parse(figure.querySelector('script').textContent);
    this.rows = readBars(data);
    this.span = data.span;
    this.lanes = [null, 'exchange', 'sent'].filter((lane) => lane === null || this.rows.some((row) => row.bars.some((bar) => laneOf(bar) === lane)));
    this.selected = null;  // {row, bar}
    this.layOut();
  }

  layOut() {
    const num = this.rows.length;
    this.rowHeight = num <= 16 ? 30 : num <= 32 ? 22 : num <= 64 ? 14 : 9;
    this.width = this.canvas.parentElement.clientWidth;
    this.height = num * this.rowHeight + 24;
    this.left = this.width < 500 ? 46 : 64;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = this.height + 'px';
    this.pen = this.canvas.getContext('2d');
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(this.figure);
    this.colour = (name) => style.getPropertyValue('--' + name).trim();
    this.fills = new Map();
  }

  // Later stages of a rank are paler: mixed with the page's ground.
  fillOf(row, bar) {
    const turn = Math.max(0, row.stages.indexOf(bar.group[1])), key = bar.group[0] + turn + '/' + row.stages.length;
    if (!this.fills.has(key)) {
      const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
      const full = channels(this.colour(bar.group[0])), ground = channels(this.colour('card'));
      const part = laneOf(bar) === null && row.stages.length > 1 ? 0.5 * turn / (row.stages.length - 1) : 0;
      const mixed = full.map((value, i) => Math.round(value + (ground[i] - value) * part));
      const linear = mixed.map((value) => Math.pow(value / 255, 2.2));
      const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
      this.fills.set(key, {fill: `rgb(${mixed})`, ink: luminance > 0.19 ? '#101214' : '#ffffff'});
    }
    return this.fills.get(key);
  }

  x(seconds) { return this.left + (seconds - this.view.from) / (this.view.to - this.view.from) * (this.width - this.left); }
  seconds(x) { return this.view.from + (x - this.left) / (this.width - this.left) * (this.view.to - this.view.from); }

  // Top and height of a bar's lane: those of what is sent share a little more than a quarter of the row, each.
  lane(index, bar) {
    const below = this.lanes.length - 1, top = index * this.rowHeight + 1, whole = this.rowHeight - 2;
    const passes = Math.round(whole * [1, 0.72, 0.5][below]), place = this.lanes.indexOf(laneOf(bar));
    const each = (whole - passes) / below;
    return place === 0 ? [top, passes] : [top + passes + 1 + (place - 1) * each, Math.max(1, each - 1)];
  }

  draw(view) {
    this.view = view;
    const pen = this.pen;
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = '11px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    this.drawAxis();
    let drawn = 0;
    this.rows.forEach((row, index) => { drawn += this.drawRow(row, index); });
    if (this.selected) this.outline(this.selected);
    this.figure.dataset.from = view.from;
    this.figure.dataset.to = view.to;
    this.figure.dataset.drawn = drawn;
  }

  drawAxis() {
    const pen = this.pen, seconds = this.view.to - this.view.from, bottom = this.height - 24;
    const rough = seconds / Math.max(2, (this.width - this.left) / 110), power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    pen.fillStyle = this.colour('muted');
    pen.strokeStyle = this.colour('rule');
    pen.lineWidth = 1;
    for (let time = Math.ceil(this.view.from / step) * step; time <= this.view.to; time += step) {
      const x = Math.round(this.x(time)) + 0.5, name = inSeconds(Math.abs(time) < step / 1e3 ? 0 : time);
      pen.beginPath();
      pen.moveTo(x, 0);
      pen.lineTo(x, bottom + 4);
      pen.stroke();
      const half = pen.measureText(name).width / 2;
      pen.fillText(name, Math.min(Math.max(x - half, 0), this.width - 2 * half), bottom + 14);
    }
  }

  drawRow(row, index) {
    const pen = this.pen, every = Math.ceil(13 / this.rowHeight);
    pen.fillStyle = this.colour('track');
    const [top, height] = this.lane(index, {group: ['forward']});
    pen.fillRect(this.left, top, this.width - this.left, height);
    let drawn = 0;
    for (const bar of row.bars) {
      if (bar.end < this.view.from || bar.start > this.view.to) continue;
      this.drawBar(row, index, bar);
      drawn++;
    }
    pen.clearRect(0, index * this.rowHeight, this.left, this.rowHeight);
    pen.fillStyle = this.colour('muted');
    if (index % every === 0) pen.fillText(row.label, 0, (index + 0.5) * this.rowHeight, this.left - 6);
    return drawn;
  }

  drawBar(row, index, bar) {
    const pen = this.pen, [top, height] = this.lane(index, bar), {fill, ink} = this.fillOf(row, bar);
    const begin = Math.max(this.x(bar.start), this.left - 2), end = Math.min(this.x(bar.end), this.width + 2), width = end - begin;
    pen.fillStyle = fill;
    pen.fillRect(begin, top, width > 3 ? width - 0.75 : Math.max(width, 0.5), height);
    if (bar.number < 0 || bar.group[2] || height < 11) return;
    const name = String(bar.number + 1), needed = pen.measureText(name).width;
    if (needed + 4 > width) return;
    pen.fillStyle = ink;
    pen.fillText(name, begin + (width - needed) / 2, top + height / 2 + 0.5);
  }

  outline({row, bar}) {
    const [top, height] = this.lane(row, bar), begin = Math.max(this.x(bar.start), this.left), end = Math.min(this.x(bar.end), this.width);
    if (end < begin) return;
    this.pen.strokeStyle = this.colour('ink');
    this.pen.lineWidth = 2;
    this.pen.strokeRect(begin - 0.5, top - 0.5, Math.max(end - begin, 2), height + 1);
  }

  // The bar at a place of the canvas, or the nearest within three pixels.
  at(x, y) {
    const row = Math.floor(y / this.rowHeight);
    if (row < 0 || row >= this.rows.length || x < this.left) return null;
    let best = null, least = 3;
    for (const bar of this.rows[row].bars) {
      const [top, height] = this.lane(row, bar), gap = Math.max(this.x(bar.start) - x, x - this.x(bar.end), 0);
      if (y < top - 1 || y > top + height + 1 || gap > least) continue;
      if (gap < least || best === null) [best, least] = [bar, gap];
    }
    return best && {row, bar: best};
  }
}
