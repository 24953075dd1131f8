// Why a call is put to a person: where it works, and what may go wrong.

interface Reason {
  folder: string;
  /** About this call. Always shown. */
  own: string;
  /** About every command on this machine. Shown once a day. */
  caution: string;
}

/** Divide the server's reason, which begins with the folder where cautions follow; `known` is the folder that was chosen. */
export function divide(reason: string, known: string): Reason {
  const begins = (folder: string) => reason.startsWith(`It works in ${folder}.`);
  const folder = known && begins(known) ? known : (/^It works in (.*?)\.(?: (?=[A-Z])|$)/s.exec(reason)?.[1] ?? "");
  if (!folder) return { folder: known, own: reason, caution: "" };
  return { folder, own: "", caution: reason.slice(`It works in ${folder}.`.length).trim() };
}

type Store = Pick<Storage, "getItem" | "setItem">;
const KEY = "holdfast.caution";

/** Return whether this call shows the caution: the first call of a day does, however often it is drawn. */
export function isDue(caution: string, call: string, day: string, store: Store): boolean {
  const today = `${day} ${caution}`;
  const [said, on] = (store.getItem(KEY) ?? "").split("\n");
  if (said === today) return on === call;
  store.setItem(KEY, `${today}\n${call}`);
  return true;
}
