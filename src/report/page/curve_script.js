// A curve says its values at the mouse, at a finger and to the arrow keys.
function followCurve(figure) {
  const data = JSON.parse(figure.querySelector('script').textContent), plot = figure.querySelector('.plot');
  const cursor = plot.querySelector('.cursor'), tip = plot.querySelector('.tip');
  const place = (x) => {
    const value = data.log ? Math.log(x) : x;
    return data.xs[1] > data.xs[0] ? (value - data.xs[0]) / (data.xs[1] - data.xs[0]) : 0.5;
  };
  const all = [...new Set(data.series.flatMap((series) => series.x))].sort((a, b) => a - b);
  let chosen = -1;
  const nearest = (list, x) => list.reduce((best, one, i) => Math.abs(place(one) - place(x)) < Math.abs(place(list[best]) - place(x)) ? i : best, 0);

  const show = (index) => {
    chosen = Math.min(Math.max(index, 0), all.length - 1);
    const x = all[chosen], lines = [`${data.x_name} ${x}`];
    for (const series of data.series) {
      const at = nearest(series.x, x), isHere = Math.abs(place(series.x[at]) - place(x)) < 1e-9;
      if (isHere) lines.push(data.series.length > 1 ? `${series.name}: ${series.text[at]}` : series.text[at]);
    }
    tip.textContent = lines.join('\n');
    cursor.hidden = tip.hidden = false;
    const svg = plot.querySelector('svg'), left = svg.getBoundingClientRect().left - plot.getBoundingClientRect().left, width = svg.clientWidth;
    cursor.style.left = left + place(x) * width + 'px';
    tip.style.left = Math.min(left + place(x) * width + 8, plot.clientWidth - tip.offsetWidth) + 'px';
  };
  const hide = () => {
    cursor.hidden = tip.hidden = true;
    chosen = -1;
  };
  plot.addEventListener('pointermove', (event) => {
    const box = plot.querySelector('svg').getBoundingClientRect(), part = (event.clientX - box.left) / box.width;
    show(all.reduce((best, x, i) => Math.abs(place(x) - part) < Math.abs(place(all[best]) - part) ? i : best, 0));
  });
  plot.addEventListener('pointerleave', hide);
  plot.addEventListener('blur', hide);
  plot.addEventListener('keydown', (event) => {
    const by = {ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20}[event.key];
    if (!by) return;
    show(chosen < 0 ? (by > 0 ? 0 : all.length - 1) : chosen + by);
    event.preventDefault();
  });
}

document.querySelectorAll('figure.curve').forEach(followCurve);
