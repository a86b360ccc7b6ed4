// What can be used, but doesn't say what it is for.
() => [...document.querySelectorAll("button, input, select, textarea, a, [role=img]")]
    .filter((node) => node.checkVisibility())
    .filter((node) => !(node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length))
    .map((node) => node.outerHTML)
