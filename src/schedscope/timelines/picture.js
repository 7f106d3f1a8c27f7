// Exports the current view: PNG from the canvas, SVG from the same drawing calls.

const HEADER = 26, FOOTER = 26; // CSS pixels above and below the picture

const escaped = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

/** Has the drawing interface of a canvas and writes SVG; text is measured with a real canvas. */
function svgPen(real, hatch) {
  const parts = [];
  let path = "";
  const number = (value) => String(Math.round(value * 100) / 100);
  const ink = (style) => (typeof style === "string" ? style : "url(#hatch)");
  const pen = {
    fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: real.font, textBaseline: "middle", textAlign: "left",
    setTransform() {},
    measureText(text) { real.font = pen.font; return real.measureText(text); },
    createImageData: (width, height) => real.createImageData(width, height),
    fillRect(x, y, width, height) {
      if (width <= 0 || height <= 0) return;
      const faint = pen.globalAlpha < 1 ? ` opacity="${pen.globalAlpha}"` : "";
      parts.push(`<rect x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}" fill="${ink(pen.fillStyle)}"${faint}/>`);
    },
    strokeRect(x, y, width, height) {
      parts.push(`<rect x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}" fill="none" stroke="${ink(pen.strokeStyle)}" stroke-width="${number(pen.lineWidth)}"/>`);
    },
    fillText(text, x, y) {
      const [, weight, size] = /^(bold )?([\d.]+)px/.exec(pen.font) || [null, null, "12"];
      parts.push(`<text x="${number(x)}" y="${number(y + Number(size) * 0.35)}" font-size="${size}"${weight ? ' font-weight="bold"' : ""}${pen.textAlign === "right" ? ' text-anchor="end"' : ""} fill="${ink(pen.fillStyle)}">${escaped(text)}</text>`);
    },
    beginPath() { path = ""; },
    moveTo(x, y) { path += `M${number(x)} ${number(y)}`; },
    lineTo(x, y) { path += `L${number(x)} ${number(y)}`; },
    arc(x, y, radius) { path += `M${number(x - radius)} ${number(y)}a${number(radius)} ${number(radius)} 0 1 0 ${number(2 * radius)} 0a${number(radius)} ${number(radius)} 0 1 0 ${number(-2 * radius)} 0`; },
    fill() { parts.push(`<path d="${path}" fill="${ink(pen.fillStyle)}" opacity="${pen.globalAlpha}"/>`); },
    stroke() { parts.push(`<path d="${path}" fill="none" stroke="${ink(pen.strokeStyle)}" stroke-width="${number(pen.lineWidth)}" opacity="${pen.globalAlpha}"/>`); },
    putImageData(tile, x, y) {
      const sheet = document.createElement("canvas");
      sheet.width = tile.width;
      sheet.height = tile.height;
      sheet.getContext("2d").putImageData(tile, 0, 0);
      parts.push(`<image x="${number(x)}" y="${number(y)}" width="${tile.width}" height="${tile.height}" href="${sheet.toDataURL("image/png")}"/>`);
    },
    text: (width, height, above, ground) => `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif">` +
      `<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse"><path d="M-1 1L1 -1M0 5L5 0M4 6L6 4" stroke="${hatch}"/></pattern></defs>` +
      `<rect width="${width}" height="${height}" fill="${ground}"/>${above(parts)}</svg>\n`,
    parts,
  };
  return pen;
}

/** A copy of the canvas, which the next frame does not change. */
function copied2d(canvas) {
  const copy = h("canvas", { width: String(canvas.width), height: String(canvas.height) });
  copy.getContext("2d").drawImage(canvas, 0, 0);
  return copy;
}

/** Blocks from top to bottom, each under its title, with the legend at the end. */
async function filed(kind, blocks, colour, ratio) {
  const width = Math.max(...blocks.map((block) => block.width)), tops = [];
  let below = 0;
  for (const block of blocks) {
    tops.push(below + HEADER * ratio);
    below = tops.at(-1) + block.height;
  }
  const size = [width, below + FOOTER * ratio], name = `${blocks.map((block) => block.name).filter(Boolean).join("-and-")}.${kind}`;
  const words = (pen) => {
    blocks.forEach((block, i) => titled(pen, block.title, colour, ratio, tops[i] - HEADER * ratio));
    legend(pen, { colour, ratio, width, below });
  };
  const sheet = h("canvas", { width: String(size[0]), height: String(size[1]) }), real = sheet.getContext("2d");
  if (kind === "svg") {
    const pen = svgPen(real, colour.hatch);
    words(pen);
    const drawn = blocks.map((block, i) => `<g transform="translate(0 ${tops[i]})">${block.drawn}</g>`).join("");
    return download(name, new Blob([pen.text(...size, (captioned) => `${drawn}${captioned.join("")}`, colour.back)], { type: "image/svg+xml" }));
  }
  real.fillStyle = colour.back;
  real.fillRect(0, 0, ...size);
  blocks.forEach((block, i) => real.drawImage(block.drawn, 0, tops[i]));
  words(real);
  return download(name, await new Promise((done) => sheet.toBlob(done, "image/png")));
}

function titled(pen, title, colour, ratio, top) {
  pen.textBaseline = "middle";
  pen.font = `bold ${13 * ratio}px system-ui, sans-serif`;
  pen.fillStyle = colour.text;
  pen.fillText(title, 4 * ratio, top + (HEADER / 2) * ratio);
}

/** The legend. */
function legend(pen, { colour, ratio, width, below }) {
  pen.font = `${12 * ratio}px system-ui, sans-serif`;
  let x = 4 * ratio;
  const y = below + (FOOTER / 2) * ratio;
  for (const [code, word] of [[RUNNING, "running"], [RUNNABLE, "waiting for a CPU"], [BLOCKED, "blocked"], [STOPPED, "stopped"], [SLEEPING, "sleeping"], [PARKED, "kernel thread at rest"]]) {
    const second = (colour.second || {})[code], step = code === PARKED ? DASH + GAP : 18;
    pen.fillStyle = colour[code] || colour[SLEEPING];
    if (code !== SLEEPING && code !== PARKED) pen.fillRect(x, y - 6 * ratio, 18 * ratio, 12 * ratio);
    else for (let at = 0; at < 18; at += step) pen.fillRect(x + at * ratio, y - ratio, Math.min(step === 18 ? 18 : DASH, 18 - at) * ratio, 2 * ratio);
    for (let i = 0; second && PATTERNS[code] && i < 3; i++) {
      pen.fillStyle = pen.strokeStyle = second;
      pen.lineWidth = 2 * ratio;
      if (code === STOPPED) pen.fillRect(x, y + (4 * i - 6) * ratio, 18 * ratio, ratio);
      else if (code === BLOCKED) pen.fillRect(x + (2 + 6 * i) * ratio, y - 6 * ratio, ratio, 12 * ratio);
      else {
        pen.beginPath();
        pen.moveTo(x + 6 * i * ratio, y + 6 * ratio);
        pen.lineTo(x + 6 * (i + 1) * ratio, y - 6 * ratio);
        pen.stroke();
      }
    }
    pen.fillStyle = colour.text;
    pen.fillText(word, x + 23 * ratio, y);
    x += 40 * ratio + pen.measureText(word).width;
    if (x > width) break;
  }
}

/** Offers the file as a download. */
function download(name, blob) {
  const address = URL.createObjectURL(blob), anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
