// Put into every page before its own scripts: notes what the page does, with as little work as can be.

(() => {
  const last = (selector) => [...document.querySelectorAll(selector)].at(-1);
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  // A task of its own after the frame: by then the frame has been painted.
  const painted = async () => {
    await frame();
    await new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resolve;
      port2.postMessage(null);
    });
  };
  const appeared = (isThere) => new Promise((resolve) => {
    if (isThere()) return resolve();
    const observer = new MutationObserver(() => {
      if (!isThere()) return;
      observer.disconnect();
      resolve();
    });
    observer.observe(document, { childList: true, subtree: true, characterData: true });
  });
  const isAtEnd = () => {
    const log = document.querySelector(".transcript");
    return log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  };

  const watched = { tasks: [], frames: [], marks: {} };
  let running = false;
  let observer = null;

  window.bench = {
    /** Milliseconds since `from` until the conversation's last turn is painted with `text` in it, at its end. */
    async shows(text, from = 0) {
      await appeared(() => last(".transcript section.turn")?.textContent.includes(text));
      await painted();
      if (!isAtEnd()) throw new Error("the end is not in view");
      return performance.now() - from;
    },

    /** The same, from here, by its address. */
    goes(hash, text) {
      const from = performance.now();
      location.hash = hash;
      return this.shows(text, from);
    },

    /** Once the last turn has been answered. Asked from within: polling from outside would be what is measured. */
    answered: () => appeared(() => document.querySelector(".transcript section.turn:last-of-type > .footer")),

    /** Begin to note tasks above 50 ms and the time between frames. */
    watch() {
      Object.assign(watched, { tasks: [], frames: [] });
      observer?.disconnect();
      observer = new PerformanceObserver((list) => {
        for (const { duration, startTime } of list.getEntries()) watched.tasks.push([duration, startTime]);
      });
      observer.observe({ type: "longtask" });
      running = true;
      let before = 0;
      const note = (at) => {
        if (before) watched.frames.push(at - before);
        before = at;
        if (running) requestAnimationFrame(note);
      };
      requestAnimationFrame(note);
    },

    /** Begin to note when each mark of the answer `seed` is drawn. Only what is new is looked at. */
    follow(seed) {
      const mark = new RegExp(`mark-${seed}-(\\d+) `, "g");
      const look = (node) => {
        for (const [, number] of (node.textContent ?? "").matchAll(mark)) watched.marks[number] ??= performance.timeOrigin + performance.now();
      };
      appeared(() => document.querySelector(".transcript")).then(() => {
        const log = document.querySelector(".transcript");
        new MutationObserver((changes) => {
          for (const { addedNodes, target } of changes) {
            addedNodes.forEach(look);
            if (target.nodeType === Node.TEXT_NODE) look(target);
          }
        }).observe(log, { childList: true, subtree: true, characterData: true });
        look(log);
      });
    },

    async ended() {
      await painted();
      running = false;
      return watched;
    },

    /** What the last turn reads, every piece of it on its own line. */
    reads: () => [...last(".transcript section.turn").querySelectorAll(".words, .block > *")].map((each) => each.textContent),
  };
})();
