// A dialog: title, contents, buttons. The browser keeps focus inside and closes it on Escape.

import { h, icon } from "../dom";

export interface Dialog {
  element: HTMLDialogElement;
  close(): void;
}

export function dialog(title: string, body: Node[], buttons: HTMLElement[], submit: () => void, wide = false): Dialog {
  const close = (): void => element.close();
  const form = h(
    "form",
    {
      onsubmit: (e: Event) => {
        e.preventDefault();
        submit();
      },
    },
    h("header", {}, h("h2", {}, title), h("button", { type: "button", class: "quiet square", "aria-label": "Close", onclick: close }, icon("close"))),
    h("div", { class: "dialog-body" }, ...body),
    h("footer", {}, h("button", { type: "button", onclick: close }, "Cancel"), ...buttons),
  );
  const element = h("dialog", { class: wide ? "wide" : "", "aria-label": title, onclose: () => element.remove() }, form);
  document.body.append(element);
  element.showModal();
  return { element, close };
}
