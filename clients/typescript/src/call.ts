// Calls of a croft server over HTTP.

import { constants, closeSync, fstatSync, openSync, readSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { createSecureContext } from "node:tls";

import { type Instant, systemClock } from "./clock.js";
import { type Body, cannot, parseObject, Problem, problemOf } from "./wire.js";

const maxAnswer = 64 << 20;
const maxFile = 4 << 20;
const tokenAge = 60; // seconds for which a token is used before its file is read again
const silence = 60; // a quiet stream says something every 15 seconds

/** An answer, and the moment before its request was sent. */
export interface Answer {
  readonly sent: Instant;
  readonly body: Body;
}

/** Makes calls. */
export class Caller {
  readonly #url: URL;
  readonly #base: string;
  readonly #timeout: number;
  readonly #agent: http.Agent;
  readonly #tokenFile: string;
  #token: string;
  #tokenRead = systemClock().monotonic;

  constructor(text: string, timeout: number) {
    const { url, options } = readURL(text);
    this.#url = url;
    this.#base = url.pathname.replace(/\/$/, "");
    this.#timeout = timeout;
    this.#tokenFile = options.get("token")?.slice(1) ?? "";
    this.#token = this.#readToken();
    const file = (name: string) => {
      const path = options.get(name);
      return path === undefined ? {} : { [name]: readFile(name, path) };
    };
    const kept = { keepAlive: true, maxFreeSockets: 16 };
    const names = { ...file("ca"), ...file("cert"), ...file("key") };
    // NODE_TLS_REJECT_UNAUTHORIZED=0 does not count here: it would send the
    // token and the secrets to anybody.
    const tls = { minVersion: "TLSv1.2", rejectUnauthorized: true, ...names } as const;
    const secure = url.protocol === "https:";
    this.#agent = secure ? new https.Agent({ ...kept, ...tls }) : new http.Agent(kept);
    try {
      createSecureContext(names);
    } catch (error) {
      throw invalid(`its certificates cannot be used: ${String(error)}`);
    }
  }

  /** Posts a request. The server may wait so many seconds before it answers. */
  async call(path: string, body: Body, wait = 0): Promise<Answer> {
    const first = this.#exchange(path, body, wait);
    try {
      return await first.answer;
    } catch (error) {
      if (!first.reused() || !(error instanceof Broken)) {
        throw error;
      }
    }
    // The server has closed an idle connection meanwhile. The same secret is
    // asked once more, on a new one.
    try {
      return await this.#exchange(path, body, wait, true).answer;
    } catch (error) {
      if (error instanceof Problem) {
        error.fault = false; // the first copy may have arrived
      }
      throw error;
    }
  }

  /**
   * Tells of operators' acts until the stream ends. Undefined says that it
   * begins.
   */
  acts(heard: (key: string | undefined) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const request = this.#request("/v1/acts", "GET", silence);
      request.once("error", reject);
      request.once("response", (response) => {
        response.once("error", reject);
        if (response.statusCode !== 200) {
          read(response, 1 << 20).then((text) => reject(refusal(response, text)), reject);
          return;
        }
        heard(undefined);
        let rest = "";
        response.setEncoding("utf8").on("data", (text: string) => {
          const lines = (rest + text).split("\n");
          rest = lines.pop() ?? "";
          if (rest.length > 1 << 20) {
            request.destroy(cannot("a line is too long"));
          }
          for (const line of lines) {
            if (line.startsWith("data:")) {
              try {
                heard(String(parseObject(line.slice(5))["key"]));
              } catch {
                heard(undefined);
              }
            }
          }
        });
        response.once("close", resolve);
      });
      request.end();
    });
  }

  #exchange(path: string, body: Body, wait: number, alone = false) {
    const text = Buffer.from(JSON.stringify(body));
    let request: http.ClientRequest | undefined;
    let connected = false;
    const answer = new Promise<Answer>((resolve, reject) => {
      // Before the request is sent: see "Authority" in docs/protocol.md.
      const sent = systemClock();
      const limit = this.#timeout + wait;
      request = this.#request(path, "POST", limit, text.length, alone);
      const timer = setTimeout(() => request?.destroy(new Error("no answer in time")), limit * 1000);
      const fail = (error: Error) => {
        clearTimeout(timer);
        reject(error instanceof Problem ? error : this.#failure(error, connected));
      };
      request.once("socket", (socket) => {
        connected = !socket.connecting;
        if (socket.connecting) {
          const ready = this.#url.protocol === "https:" ? "secureConnect" : "connect";
          socket.once(ready, () => (connected = true));
        }
      });
      request.once("error", fail);
      request.once("response", (response) => {
        read(response, maxAnswer)
          .then((received) => {
            if (response.statusCode !== 200) {
              throw refusal(response, received);
            }
            clearTimeout(timer);
            resolve({ sent, body: parseObject(received) });
          })
          .catch(fail);
      });
      request.end(text);
    });
    return { answer, reused: () => request?.reusedSocket === true };
  }

  #request(path: string, method: string, timeout: number, length?: number, alone = false): http.ClientRequest {
    const headers: Record<string, string | number> = {};
    const token = this.#currentToken();
    if (token !== "") {
      headers["Authorization"] = `Bearer ${token}`;
    }
    if (length !== undefined) {
      headers["Content-Type"] = "application/json";
      headers["Content-Length"] = length;
    }
    const { hostname, port, protocol } = this.#url;
    const kind = protocol === "https:" ? https : http;
    return kind.request({
      ...{ method, headers, path: this.#base + path, timeout: timeout * 1000 },
      host: hostname.replace(/^\[(.*)\]$/, "$1"),
      ...(port === "" ? {} : { port }),
      agent: alone ? new kind.Agent({ ...(this.#agent as https.Agent).options, keepAlive: false }) : this.#agent,
    }).on("timeout", function (this: http.ClientRequest) {
      this.destroy(new Error("the server is silent"));
    });
  }

  /** Without a connection, nothing was sent. */
  #failure(error: Error, connected: boolean): Problem {
    if (!connected) {
      const p = new Problem("unknown", `the server ${this.#url.hostname} cannot be reached: ${error.message}`);
      p.fault = true;
      return p;
    }
    return new Broken("unknown", `the server did not answer (${error.message}); it may or may not have happened`);
  }

  #currentToken(): string {
    const now = systemClock().monotonic;
    if (now - this.#tokenRead > tokenAge) {
      this.#tokenRead = now;
      try {
        this.#token = this.#readToken();
      } catch {
        // The last one may still count.
      }
    }
    return this.#token;
  }

  #readToken(): string {
    const file = this.#tokenFile;
    const token = file === "" ? (process.env["CROFT_SERVER_TOKEN"] ?? "") : readFile("token", file).toString().trim();
    if (token.length > 16 << 10 || !/^[!-~]*$/.test(token)) {
      throw new Problem("invalid", "token: it is too long, or has a character that no token has");
    }
    if (file !== "" && token === "") {
      throw new Problem("invalid", `token: ${file} is empty`);
    }
    return token;
  }
}

/** The connection broke before the answer. */
class Broken extends Problem {}

function read(response: http.IncomingMessage, most: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    response.on("data", (chunk: Buffer) => {
      chunks.push(chunk);
      if ((size += chunk.length) > most) {
        response.destroy(cannot("it is too long"));
      }
    });
    response.once("end", () => resolve(Buffer.concat(chunks).toString()));
    response.once("error", reject);
    response.once("close", () => reject(new Error("the answer is torn"))); // does nothing after its end
  });
}

function refusal(response: http.IncomingMessage, text: string): Problem {
  const status = response.statusCode ?? 0;
  if (status >= 300 && status < 400) {
    const p = new Problem("unknown", `the server redirects (${status}), and Croft follows no redirects`);
    p.fault = true;
    return p;
  }
  try {
    return problemOf(parseObject(text));
  } catch {
    return cannot(`its status is ${status}`);
  }
}

function invalid(why: string): Problem {
  return new Problem("invalid", `invalid server URL: ${why}`);
}

/** Reads the URL of a server and its options, as croft does. */
function readURL(text: string): { url: URL; options: Map<string, string> } {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw invalid("write https://HOST/ or http://127.0.0.1:PORT/");
  }
  const options = new Map<string, string>();
  for (const [name, value] of url.searchParams) {
    if (options.has(name) || !["token", "ca", "cert", "key", "insecure"].includes(name)) {
      throw invalid(`the options are token, ca, cert, key and insecure, each once, not ${name.slice(0, 40)}`);
    }
    options.set(name, value);
  }
  const secure = url.protocol === "https:";
  const local = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname);
  const token = options.get("token");
  if ((!secure && url.protocol !== "http:") || url.hostname === "" || url.hash !== "") {
    throw invalid("write https://HOST/ or http://127.0.0.1:PORT/");
  }
  if (url.username !== "" || url.password !== "") {
    throw invalid("it has a user; write the token into a file, and token=@FILE into the URL");
  }
  if (token !== undefined && !/^@./.test(token)) {
    throw invalid("a token does not belong into it; write token=@FILE, or set CROFT_SERVER_TOKEN");
  }
  if ((options.get("insecure") ?? "true") !== "true") {
    throw invalid("write insecure=true, or leave it out");
  }
  if (!secure && !local && !options.has("insecure")) {
    throw invalid("http would show the secrets of leases to the network; use https, or add insecure=true");
  }
  if (!secure && ["ca", "cert", "key"].some((name) => options.has(name))) {
    throw invalid("ca, cert and key are for https");
  }
  if (options.has("cert") !== options.has("key")) {
    throw invalid("cert and key belong together; give both or none");
  }
  return { url, options };
}

/**
 * Reads a file that a URL names. Somebody else may have made the URL, so a
 * device or a pipe is neither read nor waited for.
 */
function readFile(what: string, path: string): Buffer {
  let file: number | undefined;
  try {
    file = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
    if (!fstatSync(file).isFile()) {
      throw new Error(`${path} is no file`);
    }
    const content = Buffer.alloc(Math.min(maxFile, fstatSync(file).size));
    return content.subarray(0, readSync(file, content));
  } catch (error) {
    throw new Problem("invalid", `${what}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    if (file !== undefined) {
      closeSync(file);
    }
  }
}
