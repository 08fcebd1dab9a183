// The start image, and a mask painted over it.

/** A canvas with an image, on which strokes mark the areas to replace. */
export class Easel {
  /** Strokes: `{ erase, size, points }`, in pixels of the image. */
  #strokes = [];
  #image = null;
  #mask = document.createElement("canvas");
  #painting = false;
  #stroke = null;

  /** `brush` returns `{ size, erase }` when a stroke begins. */
  constructor(brush) {
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-label", "Start image");
    this.canvas.setAttribute("role", "img");
    this.canvas.addEventListener("pointerdown", (event) => {
      if (!this.#painting || event.button !== 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.#stroke = { ...brush(), points: [this.#place(event)] };
      this.#strokes.push(this.#stroke);
      this.#draw();
      event.preventDefault();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.#stroke) return;
      const moves = event.getCoalescedEvents?.() ?? [];
      for (const move of moves.length ? moves : [event]) this.#stroke.points.push(this.#place(move));
      this.#draw();
    });
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => (this.#stroke = null));
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.canvas.width, ((event.clientY - box.top) / box.height) * this.canvas.height];
  }

  /** Shows an image of this size, without a mask. */
  show(image, width, height) {
    this.#image = image;
    this.#strokes = [];
    for (const canvas of [this.canvas, this.#mask]) [canvas.width, canvas.height] = [width, height];
    this.#draw();
  }

  set painting(on) {
    this.#painting = on;
    this.canvas.classList.toggle("painting", on);
    this.#draw();
  }

  undo() {
    this.#strokes.pop();
    this.#draw();
  }

  clear() {
    this.#strokes = [];
    this.#draw();
  }

  /** Paints the mask: white where the image is replaced. */
  #fillMask() {
    const mask = this.#mask.getContext("2d", { willReadFrequently: true });
    mask.globalCompositeOperation = "source-over";
    mask.clearRect(0, 0, this.#mask.width, this.#mask.height);
    for (const { erase, size, points } of this.#strokes) {
      mask.globalCompositeOperation = erase ? "destination-out" : "source-over";
      mask.strokeStyle = "#fff";
      mask.lineWidth = size;
      mask.lineCap = mask.lineJoin = "round";
      mask.beginPath();
      mask.moveTo(...points[0]);
      // A point alone has no line to draw.
      if (points.length === 1) mask.lineTo(points[0][0] + 0.01, points[0][1]);
      for (const point of points.slice(1)) mask.lineTo(...point);
      mask.stroke();
    }
  }

  #draw() {
    if (!this.#image) return;
    const shown = this.canvas.getContext("2d");
    shown.globalAlpha = 1;
    shown.drawImage(this.#image, 0, 0, this.canvas.width, this.canvas.height);
    this.#fillMask();
    if (!this.#painting) return;
    shown.globalAlpha = 0.6;
    shown.drawImage(this.#mask, 0, 0);
  }

  /** The image as a PNG data URL, without what the file said beside its pixels. */
  image() {
    const made = document.createElement("canvas");
    [made.width, made.height] = [this.canvas.width, this.canvas.height];
    made.getContext("2d").drawImage(this.#image, 0, 0, made.width, made.height);
    return made.toDataURL("image/png");
  }

  /** The mask as a PNG data URL, white on black; null if nothing is painted. */
  mask() {
    if (!this.#painting) return null;
    this.#fillMask();
    const { width, height } = this.#mask;
    const pixels = this.#mask.getContext("2d").getImageData(0, 0, width, height).data;
    if (!pixels.some((value, place) => place % 4 === 3 && value >= 128)) return null;
    const made = document.createElement("canvas");
    [made.width, made.height] = [width, height];
    const drawn = made.getContext("2d");
    drawn.fillRect(0, 0, width, height);
    drawn.drawImage(this.#mask, 0, 0);
    return made.toDataURL("image/png");
  }
}
