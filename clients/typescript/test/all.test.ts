// All tests, in one process: a Node for each file would take more time than the
// tests themselves.

import { describe } from "node:test";

import { standingStill } from "./blocked.js";
import { grants } from "./grants.js";
import { loss } from "./loss.js";
import { many } from "./many.js";
import { packaging } from "./package.js";
import { recipes } from "./recipes.js";
import { server } from "./server.js";
import { overServer } from "./support.js";
import { notKnown } from "./unknown.js";
import { work } from "./work.js";
import { writes } from "./writes.js";

// Most of them wait. More at a time would only be more processes at a time.
describe("leases", { concurrency: 8 }, () => {
  standingStill();
  loss();
  notKnown();
  writes();
  many();
  packaging();
  grants();
  work();
  if (overServer) {
    server();
  } else {
    recipes();
  }
});
