// Zoom, search and reset of flame graphs. Each frame is an svg of its own. Callers come first.
// (The page is also valid XML, so this script has no sign that would begin an element.)
'use strict';
for (const svg of document.querySelectorAll('.flame')) {
  const graph = svg.closest('.graph');
  const [search, reset, found] = ['input', 'button', 'output'].map(name => graph.querySelector('.tools ' + name));
  const row = Number(svg.dataset.row), named = Number(svg.dataset.named), seen = Number(svg.dataset.seen);

  const callers = {}; // by their row from the top: the latest
  const frames = Array.from(svg.children, at => {
    const title = at.querySelector('title').textContent;
    const frame = {
      at, x: parseFloat(at.getAttribute('x')), y: Number(at.getAttribute('y')), width: parseFloat(at.getAttribute('width')),
      name: title.slice(0, title.lastIndexOf(' — ')),
    };
    frame.caller = callers[frame.y + row];
    callers[frame.y] = frame;
    return frame;
  });
  const root = frames[0];
  let shown = root;

  const place = (frame, x, width) => {
    const at = frame.at;
    at.setAttribute('x', x + '%');
    at.setAttribute('width', width + '%');
    at.classList.toggle('thin', seen > width);
    let text = at.querySelector('text');
    if (!text && width >= named) {
      text = at.appendChild(document.createElementNS(svg.namespaceURI, 'text'));
      text.setAttribute('x', 4);
      text.setAttribute('y', 13);
      text.textContent = frame.name;
    }
    if (text) text.classList.toggle('thin', named > width);
  };

  // zoom makes a frame as wide as the graph. Its callers stay below it, and their other calls are hidden.
  const zoom = to => {
    shown = to;
    for (const frame of frames) {
      frame.part = frame === to || Boolean(frame.caller && frame.caller.part);
      place(frame, frame.part ? (frame.x - to.x) * 100 / to.width : 0, frame.part ? frame.width * 100 / to.width : 0);
      frame.at.classList.remove('outer');
    }
    for (let frame = to.caller; frame; frame = frame.caller) {
      place(frame, 0, 100);
      frame.at.classList.add('outer');
    }
    tell();
  };

  // find marks the frames whose name has the text, and adds up the values of these calls.
  let term = '', hits = 0, width = 0;
  const find = text => {
    term = text.toLowerCase();
    hits = width = 0;
    for (const frame of frames) {
      const hit = term !== '' ? frame.name.toLowerCase().includes(term) : false;
      const within = Boolean(frame.caller && frame.caller.found);
      frame.found = hit || within;
      if (hit) hits++;
      if (hit ? !within : false) width += frame.width;
      frame.at.classList.toggle('hit', hit);
    }
    tell();
  };

  const tell = () => {
    found.textContent = term ? `${hits} ${hits === 1 ? 'frame' : 'frames'}, ${width.toFixed(2)}%` : '';
    reset.disabled = shown === root ? term === '' : false;
  };

  const clear = () => {
    search.value = '';
    find('');
    zoom(root);
  };

  svg.addEventListener('click', event => {
    const frame = frames.find(frame => frame.at === event.target.parentNode);
    if (frame) zoom(frame);
  });
  search.addEventListener('input', () => find(search.value));
  graph.addEventListener('keydown', event => {
    if (event.key === 'Escape') clear();
  });
  reset.addEventListener('click', clear);
  tell();
  graph.classList.add('alive');
}
