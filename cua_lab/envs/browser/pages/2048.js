// 2048. State: a board of 4 rows, the score, and a seeded generator, so that the same keys lead to
// the same board. `lab.start` begins an episode and `lab.state` is what the grader reads.
"use strict";

const COLOURS = {
  2: "#eee4da", 4: "#ede0c8", 8: "#f2b179", 16: "#f59563", 32: "#f67c5f", 64: "#f65e3b",
  128: "#edcf72", 256: "#edcc61", 512: "#edc850", 1024: "#edc53f", 2048: "#edc22e",
};
const SIDE = 4;
const KEYS = { ArrowLeft: 0, ArrowUp: 1, ArrowRight: 2, ArrowDown: 3 };

const REMEMBERED = 32; // boards that a state lists, as the lab's own app does

let board, score, moves, keys, boards, random;
let fresh = null, merged = [];

function generator(seed) { // mulberry32
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// The cells of line i in the order in which a move in this direction packs them.
function line(direction, i) {
  return [0, 1, 2, 3].map(k => {
    const j = direction < 2 ? k : SIDE - 1 - k;
    return direction % 2 ? [j, i] : [i, j];
  });
}

// A packed line, what it scored, and where tiles merged.
function pack(values) {
  const tiles = values.filter(v => v), out = [], joins = [];
  let gained = 0;
  for (let i = 0; i < tiles.length; i++) {
    if (tiles[i] === tiles[i + 1]) {
      joins.push(out.length);
      out.push(tiles[i] * 2);
      gained += tiles[i++] * 2;
    } else out.push(tiles[i]);
  }
  while (out.length < SIDE) out.push(0);
  return { out, gained, joins };
}

function moved(direction) {
  const next = board.map(row => [...row]), joined = [];
  let gained = 0;
  for (let i = 0; i < SIDE; i++) {
    const cells = line(direction, i);
    const packed = pack(cells.map(([r, c]) => board[r][c]));
    cells.forEach(([r, c], k) => { next[r][c] = packed.out[k]; });
    packed.joins.forEach(k => joined.push(cells[k].join()));
    gained += packed.gained;
  }
  return { next, gained, joined, changed: next.join() !== board.join() };
}

function spawn() {
  const empty = [];
  board.forEach((row, r) => row.forEach((v, c) => { if (!v) empty.push([r, c]); }));
  const [r, c] = empty[Math.floor(random() * empty.length)];
  board[r][c] = random() < 0.9 ? 2 : 4;
  fresh = `${r},${c}`;
}

function over() { return [0, 1, 2, 3].every(d => !moved(d).changed); }

function draw() {
  const root = document.getElementById("board");
  root.querySelectorAll(".tile").forEach(tile => tile.remove());
  const cover = document.getElementById("over");
  board.forEach((row, r) => row.forEach((value, c) => {
    const tile = document.createElement("div"), text = value ? String(value) : "";
    const kinds = ["tile", value && value < 8 && "dark", text.length === 3 && "long",
                   text.length > 3 && "longer", fresh === `${r},${c}` && "new",
                   merged.includes(`${r},${c}`) && "merged"];
    tile.className = kinds.filter(kind => kind).join(" ");
    tile.textContent = text;
    if (value) tile.style.background = COLOURS[value] || "#3c3a32";
    root.insertBefore(tile, cover);
  }));
  document.getElementById("score").textContent = score;
  document.body.classList.toggle("over", over());
}

addEventListener("keydown", event => {
  if (!(event.key in KEYS) || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const { next, gained, joined, changed } = moved(KEYS[event.key]);
  if (changed) {
    board = next;
    score += gained;
    moves += 1;
    merged = joined;
    spawn();
    draw();
  }
  keys += 1;
  if (boards.length < REMEMBERED) boards.push(board.map(row => [...row]));
});

function fit() { // Chromium lays out at least 500 px wide, whatever the screen shows of it
  const root = document.documentElement.style;
  root.setProperty("--w", `${screen.width}px`);
  root.setProperty("--h", `${screen.height}px`);
  root.setProperty("--u", `${Math.min(screen.width, screen.height) / 100}px`);
}

const lab = {
  start({ board: rows, seed }) {
    [board, score, moves, random] = [rows.map(row => [...row]), 0, 0, generator(seed)];
    [keys, boards] = [0, [rows.map(row => [...row])]];
    [fresh, merged] = [null, []];
    fit();
    draw();
    return lab.state();
  },
  state() {
    const max_tile = Math.max(...board.flat());
    return { app: "game2048", board, score, max_tile, moves, keys, boards, over: over() };
  },
};
