"""A script for pages: it lists all visible text whose contrast is below 4.5, which WCAG asks for."""

CONTRAST = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.backgroundImage !== "none") return style.backgroundImage.match(/rgb\\([^)]*\\)/g).map(channels);
      const colour = channels(style.backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return [colour];
    }
    return [[255, 255, 255]];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest(":disabled, script")) continue;
    const style = getComputedStyle(element), ink = light(channels(element.closest("svg") ? style.fill : style.color));
    for (const paper of behind(element).map(light)) {
      const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      if (ratio < 4.5) poor.push(`${element.tagName} ${element.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
    }
  }
  return poor;
}"""
