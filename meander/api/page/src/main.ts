// Puts the page together. The address has a code behind `#code=`, which is good once: the token of a session comes for it,
// is kept by this browser for this coordinator, and does not outlive the coordinator's process.

import { Api } from "./api";
import { charts } from "./charts";
import { addQuery } from "./dialogs/add_query";
import { h } from "./dom";
import { Gate } from "./gate";
import { header } from "./header";
import { Inspector } from "./inspector";
import { MapView } from "./map/map";
import { noticeArea } from "./notices";
import { sidePanel } from "./panel/panel";
import { Store } from "./store";
import { startTheme } from "./theme";

const KEY = "meander-token";

/** The token that is kept; if the address has a code, that of the session which it opens. */
async function token(): Promise<string | null> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      const opened = await new Api(null).post<{ token: string }>("/login", { code });
      localStorage.setItem(KEY, opened.token);
    } catch {
      // used before, or too old: the session that it opened may still be good
    }
  }
  return localStorage.getItem(KEY);
}

startTheme();
const store = new Store(new Api(await token()));
const add = (): void => {
  if (store.loaded && !document.querySelector("dialog[open]")) addQuery(store);
};
const map = new MapView(store);
const inspector = new Inspector(store);
const gate = new Gate(store, (value) => {
  localStorage.setItem(KEY, value);
  store.api.token = value;
  store.start();
});
map.element.append(inspector.element);
document
  .getElementById("app")!
  .append(header(store, add), h("main", {}, h("div", { class: "stage" }, map.element, charts(store)), sidePanel(store, add)), gate.element, noticeArea());
window.addEventListener("hashchange", async () => {
  const value = await token();
  if (value && value !== store.api.token) {
    store.api.token = value;
    store.start();
  }
});
store.start();
