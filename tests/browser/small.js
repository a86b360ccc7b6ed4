// Buttons that no finger hits: under 24 pixels (WCAG 2.2, AA).
() => [...document.querySelectorAll("button")]
    .filter((node) => node.checkVisibility() && node.getBoundingClientRect().height < 24)
    .map((node) => node.outerHTML)
