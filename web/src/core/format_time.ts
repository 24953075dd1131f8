// Format times for people.

const MINUTE = 60_000;
const DAY = 86_400_000;

export function age(at: number, now: number): string {
  const minutes = Math.floor((now - at) / MINUTE);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1_440) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / 1_440)} d`;
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Return the clock time of a moment today, the date of any other. */
export function shortTime(at: number, now: number): string {
  return dayOf(at, now) === "today" ? clock(at) : date(at, now);
}

export function date(at: number, now: number): string {
  const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
  return new Date(at).toLocaleDateString([], { day: "numeric", month: "short", ...(sameYear ? {} : { year: "numeric" }) });
}

export type Day = "today" | "yesterday" | "earlier";

export function dayOf(at: number, now: number): Day {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (at >= midnight) return "today";
  return at >= midnight - DAY ? "yesterday" : "earlier";
}
