// Waiting for an answer, for a limited time.

import { Unknown } from "./errors.js";

const slice = 1; // seconds

/**
 * Waits for an answer for at most so many seconds in which this process was
 * awake, or until the signal fires. Meanwhile the process does not end.
 *
 * It waits in slices. So a time in which the event loop was blocked, or the
 * process stopped, counts as one slice. The answer that has arrived meanwhile
 * is read before the next slice ends.
 */
export function answered<T>(answer: Promise<T>, seconds: number, signal?: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    let left = seconds;
    let timer: NodeJS.Timeout | undefined;
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
    const abort = () => {
      end();
      reject(signal?.reason);
    };
    const wait = () => {
      const now = Math.min(slice, left);
      timer = setTimeout(() => {
        left -= now;
        if (left > 0) {
          wait();
          return;
        }
        end();
        reject(new Unknown("croft did not answer in time; the lease gives no authority until it does"));
      }, now * 1000);
    };
    answer.then(
      (value) => {
        end();
        resolve(value);
      },
      (error) => {
        end();
        reject(error);
      },
    );
    if (signal?.aborted) {
      abort();
      return;
    }
    signal?.addEventListener("abort", abort);
    wait();
  });
}

/**
 * Lets the event loop read what has arrived. One turn is not enough: the loop
 * may be in the middle of the turn that it began before it was blocked.
 */
export async function messagesRead(): Promise<void> {
  for (let turn = 0; turn < 2; turn++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
