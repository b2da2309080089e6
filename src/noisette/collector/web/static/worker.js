// Keeps the page of a campaign for when there is no network. Reports are not its business: they wait in the page.

const KEPT = "noisette-form";
const FILES = ["form.css", "form.js", "noisette.js", "survey.js", "laws.js", "laws-more.js", "spent.js", "random.js", "blind.js", "draws.js", "bytes.js", "icon.svg",
  ...["en", "de", "fr", "es", "zh"].map(language => `words-${language}.js`)].map(name => `/static/${name}`);

addEventListener("install", event => event.waitUntil((async () => {
  const pages = await clients.matchAll({ includeUncontrolled: true, type: "window" });
  await (await caches.open(KEPT)).addAll([...FILES, ...new Set(pages.map(page => new URL(page.url).pathname))]);
  await skipWaiting();
})()));

addEventListener("activate", event => event.waitUntil(clients.claim()));

addEventListener("fetch", event => {
  const { pathname, origin } = new URL(event.request.url);
  const page = /^\/c\/[^/]+$/.test(pathname) || pathname.startsWith("/static/");
  if (event.request.method !== "GET" || origin !== location.origin || !page) return;
  event.respondWith((async () => {
    const kept = await caches.open(KEPT);
    try {
      const answer = await fetch(event.request);
      if (answer.ok) await kept.put(pathname, answer.clone());
      return answer;
    } catch (error) {
      const found = await kept.match(pathname);
      if (found) return found;
      throw error;
    }
  })());
});
