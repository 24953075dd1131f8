// Every word that people read on the page, together. Nothing else in `view` holds words; the longer parts are in `words`.

import { agents } from "./words/agents";
import { conversation } from "./words/conversation";
import { memory } from "./words/memory";
import { set } from "./words/settings";

export const s = {
  name: "Holdfast", untitled: "Untitled",
  newConversation: "New conversation",
  conversations: "Conversations",
  needsYou: "Needs you",
  today: "Today", yesterday: "Yesterday", earlier: "Earlier",
  archived: "Archived", showArchived: "Show archived", hideArchived: "Hide archived",
  search: "Search",
  searchEverywhere: "Search all conversations",
  noneFound: "Nothing found.",
  rename: "Rename",
  pin: "Pin", unpin: "Unpin", pinned: "Pinned",
  archive: "Archive", unarchive: "Bring back",
  delete: "Delete",
  deleted: "Conversation deleted.",
  deletedWaiting: "Conversation deleted. What waits to be remembered of it still will be.",
  deletedApart: "Conversation deleted. What waited to be remembered of it will not be.",
  clearAsks: "Clear what was said so far? What waits to be remembered of it still will be.",
  clearIt: "Clear",
  undo: "Undo",
  cancel: "Cancel",
  close: "Close",
  save: "Save",
  menu: "Menu",
  more: "More",
  copy: "Copy",
  copied: "Copied",
  settings: "Settings",
  signOut: "Sign out",
  status: { idle: "Ready", working: "Working", needs_you: "Needs you", failed: "Failed", interrupted: "Stopped" },
  unread: "Unread",

  ...conversation,

  demoLabel: "Scripted demo, not an AI",
  connectModel: "Connect a model",

  hello: "What can I do for you?",
  helloMore: "Everything you send is on disk before it is answered. Close this page, stop the server: the work goes on.",
  answers: (model: string) => `${model} answers.`,
  tries: ["What can you do here?", "run date", "count to 300"],

  connecting: "Connecting…",
  lost: "The connection is lost. What you write is kept and sent when it is back.",
  reconnecting: "Trying again…",
  back: "Connected again.",
  loading: "Loading…",
  gone: "This conversation is no longer here.",
  cannotLoad: "This conversation cannot be loaded.",

  signInTitle: "Sign in",
  signInHow: "Open the link that the server printed when it started, or run holdfast link for a new one.",
  password: "Password",
  signIn: "Sign in",
  linkUsed: "That link has been used or is too old.",

  find: "Find in this conversation",
  findCount: (at: number, all: number) => (all ? `${at} of ${all}` : "Nothing found."),
  next: "Next",
  previous: "Previous",

  palette: "Do something…",
  keyboard: "Keyboard",
  keys: [
    ["Ctrl K", "Do anything"],
    ["Ctrl F", "Find in this conversation"],
    ["Ctrl B", "Show or hide the list"],
    ["Alt N", "New conversation"],
    ["Alt ↑ / ↓", "Previous or next conversation"],
    ["A · E · D", "Allow, edit, don't allow (when asked)"],
    ["Esc", "Stop the answer, or close what is open"],
    ["↑ in an empty message", "Your earlier messages"],
    ["Enter", "Send"],
    ["Shift Enter", "A new line"],
    ["?", "This sheet"],
  ] as const,
  set,
  memory,
  agents,
  notifyDone: (title: string) => `${title}: finished`,
  notifyAsks: (title: string) => `${title}: needs you`,
} as const;
