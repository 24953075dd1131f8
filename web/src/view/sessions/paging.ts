// Load older and archived sessions, which the feed does not send, page by page as the user scrolls.

import { batch } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { SessionInfoList } from "../../core/protocol";
import { api, hasArchived, nextCursors, sessions, type SessionListKind } from "../app/store";

const PAGE = 100;
const inProgress = { now: false };

/** Check whether any session is archived, so that the archive is offered. */
export async function checkForArchived(): Promise<void> {
  if (nextCursors.value.archive === "" && !hasArchived.value) await loadPage("archive", "", 1);
}

/** Load the next page of a list that is not complete. */
export async function loadOlder(kind: SessionListKind): Promise<void> {
  const cursor = nextCursors.value[kind];
  if (cursor !== null) await loadPage(kind, cursor, PAGE);
}

async function loadPage(kind: SessionListKind, cursor: string, limit: number): Promise<void> {
  if (inProgress.now) return;
  inProgress.now = true;
  try {
    const after = cursor && `&cursor=${encodeURIComponent(cursor)}`;
    const page = await api.get<SessionInfoList>(`api/sessions?limit=${limit}&archived=${kind === "archive"}${after}`);
    if (nextCursors.value[kind] !== cursor) return; // The feed has restarted.
    batch(() => {
      // Rows from the feed are newer.
      sessions.value = new Map([...page.sessions.map((row) => [row.id, row] as const), ...sessions.value]);
      // After a check with limit 1, the rest is still to be loaded.
      if (limit > 1 || !page.cursor) nextCursors.value = { ...nextCursors.value, [kind]: page.cursor };
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // The connection shows the error; further scrolling loads again.
  } finally {
    inProgress.now = false;
  }
}
