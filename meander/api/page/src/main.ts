// Puts the page together. The token comes in the address behind `#token=`, is kept for this tab only, and does not stay
// in the address.

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

function token(): string | null {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

startTheme();
const store = new Store(new Api(token()));
const add = (): void => {
  if (store.loaded && !document.querySelector("dialog[open]")) addQuery(store);
};
const map = new MapView(store);
const inspector = new Inspector(store);
const gate = new Gate(store, (value) => {
  sessionStorage.setItem(KEY, value);
  store.api.token = value;
  store.start();
});
map.element.append(inspector.element);
document
  .getElementById("app")!
  .append(header(store, add), h("main", {}, h("div", { class: "stage" }, map.element, charts(store)), sidePanel(store, add)), gate.element, noticeArea());
window.addEventListener("hashchange", () => {
  const value = token();
  if (value && value !== store.api.token) {
    store.api.token = value;
    store.start();
  }
});
store.start();
