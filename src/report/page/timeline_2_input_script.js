// Zooming, panning and asking. All timelines of a page show the same stretch of time, so that a prediction and a measurement stay side by side.
class Timelines {
  constructor(figures) {
    this.drawings = figures.map((figure) => new TimelineDrawing(figure));
    this.span = Math.max(...this.drawings.map((drawing) => drawing.span));
    this.shortest = this.span / 1e5;
    this.view = {from: 0, to: this.span};
    for (const drawing of this.drawings) this.listen(drawing);
    const again = () => {
      for (const drawing of this.drawings) drawing.layOut();
      this.draw();
    };
    new ResizeObserver(again).observe(this.drawings[0].canvas.parentElement);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
    this.draw();
  }

  draw() {
    const {from, to} = this.view;
    for (const drawing of this.drawings) {
      drawing.draw(this.view);
      const thumb = drawing.figure.querySelector('.window i');
      thumb.style.left = 100 * from / this.span + '%';
      thumb.style.width = 100 * (to - from) / this.span + '%';
    }
  }

  show(from, length) {
    length = Math.min(this.span, Math.max(this.shortest, length));
    from = Math.min(Math.max(0, from), this.span - length);
    this.view = {from, to: from + length};
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  // Keeps the moment `at` where it is on the screen.
  zoom(factor, at) {
    const length = this.view.to - this.view.from, next = Math.min(this.span, Math.max(this.shortest, length * factor));
    this.show(at - (at - this.view.from) * next / length, next);
  }
  pan(seconds) { this.show(this.view.from + seconds, this.view.to - this.view.from); }
  middle() { return (this.view.from + this.view.to) / 2; }

  listen(drawing) {
    const {canvas, figure} = drawing;
    figure.addEventListener('click', (event) => {
      const wish = event.target.dataset.do;
      if (wish === 'in') this.zoom(0.5, this.middle());
      if (wish === 'out') this.zoom(2, this.middle());
      if (wish === 'reset') this.show(0, this.span);
    });
    canvas.addEventListener('keydown', (event) => this.press(drawing, event));
    canvas.addEventListener('wheel', (event) => this.wheel(drawing, event), {passive: false});
    this.followPointers(drawing);
  }

  // A wheel zooms with Ctrl or once the timeline was clicked, else it scrolls the page as everywhere.
  wheel(drawing, event) {
    const length = this.view.to - this.view.from, isPan = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (isPan) {
      this.pan((event.deltaX || event.deltaY) / (drawing.width - drawing.left) * length);
    } else {
      if (!event.ctrlKey && document.activeElement !== drawing.canvas) return;
      const lines = event.deltaMode === 1 ? 16 : 1, speed = event.ctrlKey && Math.abs(event.deltaY) < 50 ? 0.01 : 0.002;
      if (!event.ctrlKey && event.deltaY > 0 && length >= this.span) return;
      this.zoom(Math.exp(event.deltaY * lines * speed), drawing.seconds(event.offsetX));
    }
    event.preventDefault();
  }

  // Drag pans, two fingers zoom, a tap or the mouse's place asks for a bar.
  followPointers(drawing) {
    const {canvas} = drawing, down = new Map();
    let moved = 0;
    const apart = () => {
      const [a, b] = [...down.values()];
      return {distance: Math.max(20, Math.abs(a - b)), centre: (a + b) / 2};
    };
    canvas.addEventListener('pointerdown', (event) => {
      down.set(event.pointerId, event.offsetX);
      moved = down.size > 1 ? 100 : 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!down.has(event.pointerId)) return this.ask(drawing, drawing.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      const before = down.get(event.pointerId), wasApart = down.size === 2 && apart();
      down.set(event.pointerId, event.offsetX);
      moved += Math.abs(event.offsetX - before);
      const perPixel = (this.view.to - this.view.from) / (drawing.width - drawing.left);
      if (down.size === 1 && moved > 4) this.pan((before - event.offsetX) * perPixel);
      if (wasApart) this.zoom(wasApart.distance / apart().distance, drawing.seconds(apart().centre));
    });
    const lift = (event) => {
      down.delete(event.pointerId);
      if (event.type === 'pointerup' && moved <= 4) this.ask(drawing, drawing.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    };
    for (const type of ['pointerup', 'pointercancel']) canvas.addEventListener(type, lift);
    canvas.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && this.ask(drawing, null));
  }

  // Says what a bar is: beside it, and to who listens.
  ask(drawing, found, x, y) {
    const tip = drawing.figure.querySelector('.tip'), before = drawing.selected;
    drawing.selected = found;
    tip.hidden = !found;
    if (found) {
      const text = describeBar(drawing.rows[found.row], found.bar);
      if (tip.textContent !== text) tip.textContent = drawing.figure.querySelector('.readout').textContent = text;
      tip.style.left = Math.min(Math.max(0, x + 12), Math.max(0, drawing.width - tip.offsetWidth - 2)) + 'px';
      tip.style.top = Math.max(y, 0) + 18 + 'px';
    }
    if ((before && before.bar) !== (found && found.bar)) this.show(this.view.from, this.view.to - this.view.from);
  }

  press(drawing, event) {
    const length = this.view.to - this.view.from;
    const wishes = {
      '+': () => this.zoom(0.5, this.middle()),
      '=': () => this.zoom(0.5, this.middle()),
      '-': () => this.zoom(2, this.middle()),
      '0': () => this.show(0, this.span),
      Home: () => this.show(0, this.span),
      Escape: () => this.ask(drawing, null),
      ArrowRight: () => event.shiftKey ? this.pan(length / 4) : this.step(drawing, 1),
      ArrowLeft: () => event.shiftKey ? this.pan(-length / 4) : this.step(drawing, -1),
      ArrowDown: () => this.changeRow(drawing, 1),
      ArrowUp: () => this.changeRow(drawing, -1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !wishes[event.key]) return;
    wishes[event.key]();
    event.preventDefault();
  }

  step(drawing, by) {
    const {row, bar} = drawing.selected || {row: 0, bar: null};
    const bars = drawing.rows[row].bars, at = bar ? bars.indexOf(bar) + by : bars.findIndex((one) => one.end >= this.view.from);
    if (bars[at]) this.select(drawing, row, bars[at]);
  }

  // To the bar of the next row that begins at about the same time.
  changeRow(drawing, by) {
    const {row, bar} = drawing.selected || {row: by > 0 ? -1 : 1, bar: {start: this.view.from}};
    const next = drawing.rows[row + by];
    if (!next || next.bars.length === 0) return;
    const near = next.bars.reduce((best, one) => Math.abs(one.start - bar.start) < Math.abs(best.start - bar.start) ? one : best);
    this.select(drawing, row + by, near);
  }

  select(drawing, row, bar) {
    const length = this.view.to - this.view.from;
    if (bar.start < this.view.from || bar.end > this.view.to) this.view = this.clamped(bar.start - length / 4, length);
    drawing.view = this.view;
    this.ask(drawing, {row, bar}, drawing.x(bar.start), (row + 1) * drawing.rowHeight - 14);
  }

  clamped(from, length) {
    const begin = Math.min(Math.max(0, from), this.span - length);
    return {from: begin, to: begin + length};
  }
}

const timelineFigures = [...document.querySelectorAll('figure.timeline')];
if (timelineFigures.length > 0) new Timelines(timelineFigures);
