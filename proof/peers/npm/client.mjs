// A client of an MCP server, made with the official SDK for TypeScript, in its
// first or second version. It starts the server, lists what there is, makes the
// calls that its second argument has, and prints what it has heard, one line of
// JSON for each step.
//
//   node client.mjs v1|v2|2026-07-28 '[{"tool": "echo", "args": {}}]' COMMAND...
import { Client as Client2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";

const [version, calls, command, ...args] = process.argv.slice(2);
const [Client, Stdio] = version === "v1" ? [Client1, Stdio1] : [Client2, Stdio2];
const options = { capabilities: { roots: {} } };
if (version !== "v1" && version !== "v2") options.versionNegotiation = { mode: { pin: version } };

const print = (step, answer) => console.log(JSON.stringify({ step, answer }));

// attempt prints the answer of a step, or its error.
async function attempt(step, ask) {
  try {
    const answer = await ask();
    print(step, answer);
    return answer;
  } catch (err) {
    print(step, { error: err.code ?? err.name, message: err.message });
  }
}

const client = new Client({ name: "client.mjs", version: "1" }, options);
await client.connect(new Stdio({ command, args, env: process.env, stderr: "ignore" }));
print("server", [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]);
await attempt("tools", () => client.listTools());
const able = client.getServerCapabilities() ?? {};
if (able.resources) {
  const found = await attempt("resources", () => client.listResources());
  for (const { uri } of found?.resources ?? []) {
    await attempt(`read ${uri}`, () => client.readResource({ uri }));
  }
  await attempt("templates", () => client.listResourceTemplates());
}
if (able.prompts) await attempt("prompts", () => client.listPrompts());
for (const { tool, args } of JSON.parse(calls)) {
  await attempt(`call ${tool}`, () => client.callTool({ name: tool, arguments: args }));
}
// Many calls at once: each gets its own answer.
const [{ tool, args: same }] = JSON.parse(calls);
const all = await Promise.all(Array.from({ length: 50 }, () => client.callTool({ name: tool, arguments: same })));
print("at once", [...new Set(all.map((each) => JSON.stringify(each)))]);
await client.close();
