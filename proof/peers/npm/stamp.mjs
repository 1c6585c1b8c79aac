// Adds a stamp to the requests of a program that knows of none, whether it
// makes them with fetch or with node:http. Load it with node --import.
import http from "node:http";

const stamp = process.env.CROFT_STAMP;

const fetch = globalThis.fetch;
globalThis.fetch = (input, init = {}) => {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("Croft-Stamp", stamp);
  return fetch(input, { ...init, headers });
};

const request = http.request;
http.request = (...args) => {
  const made = request(...args);
  made.setHeader("Croft-Stamp", stamp);
  return made;
};
