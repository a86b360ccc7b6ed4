// What makes the page scroll sideways.
() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll("body *")]
        .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > width + 1)
        .map((node) => `${node.tagName} ${node.className}: ${node.getBoundingClientRect().right}`);
}
