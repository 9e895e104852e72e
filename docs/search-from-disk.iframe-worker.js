"use strict";
// Pages opened from the disk may start no worker, in which the site's search runs: there a hidden
// frame takes its place, whose window has what a worker has.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open(); // a frame whose page is open is not replaced by an empty one
      inside.document.write("<!doctype html><title>search</title>");
      inside.document.close();
      const loaded = (source) => new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = source;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.head.append(script);
      });
      inside.importScripts = async (...sources) => {
        for (const source of sources) await loaded(source);
      };
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame = frame;
      this.inside = inside;
      this.ready = loaded(address);
    }

    async postMessage(data) {
      await this.ready;
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() { this.frame.remove(); }
  };
}
