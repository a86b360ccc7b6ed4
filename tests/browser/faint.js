// Texts that don't stand out from what is behind them: a contrast under 4.5 to 1 (WCAG 2, AA).
() => {
    const numbers = (colour) => {
        const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
        return { parts: [red, green, blue], alpha: alpha / 255 };
    };
    const light = (parts) => {
        const [red, green, blue] = parts.map((part) => part / 255).map((part) =>
            part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const { parts, alpha } = numbers(getComputedStyle(at).backgroundColor);
            if (alpha > 0.9) return parts;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const node of document.querySelectorAll("body *")) {
        const hasText = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
        if (!hasText || !node.checkVisibility() || node.closest(":disabled, option, .unseen, .skip")) continue;
        const [a, b] = [light(numbers(getComputedStyle(node).color).parts), light(behind(node))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) faint.push(`${node.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
    }
    return faint;
}
