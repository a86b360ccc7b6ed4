// Light, dark, or as the system has it.

const NAME = "llmsnap.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGNS = { system: "◐", light: "☀", dark: "☾" };

/** Make `button` switch between the three. */
export function startTheme(button) {
  const chosen = () => localStorage.getItem(NAME) ?? "system";
  const show = () => {
    const theme = chosen();
    document.documentElement.dataset.theme = theme;
    button.textContent = SIGNS[theme];
    button.title = `Colours: ${theme}`;
    button.setAttribute("aria-label", `Colours: ${theme}. Change to ${NEXT[theme]}`);
  };
  button.addEventListener("click", () => {
    localStorage.setItem(NAME, NEXT[chosen()]);
    show();
  });
  show();
}
