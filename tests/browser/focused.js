// What has the focus, and how thick the line around it is; an empty name: nothing on the page.
() => {
    const node = document.activeElement;
    if (!node || node === document.body) return ["", 0];
    const name = node.getAttribute("aria-label") || node.labels?.[0]?.innerText || node.textContent;
    const { outlineStyle, outlineWidth } = getComputedStyle(node);
    return [name.trim(), outlineStyle === "none" ? 0 : parseFloat(outlineWidth)];
}
