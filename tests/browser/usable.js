// The names of all that can be used now, in the order of the page.
() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter((node) => node.checkVisibility() && !node.disabled)
    .map((node) => node.getAttribute("aria-label") || node.labels?.[0]?.innerText || node.textContent)
    .map((name) => name.trim())
