// Why a call needs approval: its folder, and the risks.

interface ApprovalReason {
  folder: string;
  /** About this call. Always shown. */
  detail: string;
  /** About every command on this machine. Shown once a day. */
  warning: string;
}

/** Parse the server's reason, which begins with the folder if warnings follow; `workspace` is the session's folder, if known. */
export function parseReason(reason: string, workspace: string): ApprovalReason {
  const startsWith = (folder: string) => reason.startsWith(`It works in ${folder}.`);
  const folder = workspace && startsWith(workspace) ? workspace : (/^It works in (.*?)\.(?: (?=[A-Z])|$)/s.exec(reason)?.[1] ?? "");
  if (!folder) return { folder: workspace, detail: reason, warning: "" };
  return { folder, detail: "", warning: reason.slice(`It works in ${folder}.`.length).trim() };
}

type ReasonStorage = Pick<Storage, "getItem" | "setItem">;
const STORAGE_KEY = "holdfast.caution";

/** Return whether this call shows the warning: only the first call of a day does, however often it is rendered. */
export function isWarningDue(warning: string, callId: string, day: string, storage: ReasonStorage): boolean {
  const today = `${day} ${warning}`;
  const [shownWarning, shownFor] = (storage.getItem(STORAGE_KEY) ?? "").split("\n");
  if (shownWarning === today) return shownFor === callId;
  storage.setItem(STORAGE_KEY, `${today}\n${callId}`);
  return true;
}
