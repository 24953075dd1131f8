// Texts of the details: of a session, an answer, a call.

import { count } from "./count";

const number = (many: number) => many.toLocaleString("en");

export const details = {
  title: "Details",
  toggle: "Show or hide the details",
  ofAnswer: "Details of this answer",
  navigation: "What the details are about",
  conversation: "Conversation",
  answer: "Answer",
  pickHint: "Press a message or a step to see more about it.",

  now: "Now",
  writes: "Writing the answer.",
  waits: "Waiting for you.",
  since: (took: string) => (took === "now" ? "Begun just now" : `Begun ${took} ago`),
  last: "The last lines that it printed",

  answeredBy: "Who answers",
  agent: "Agent",
  model: "Model",
  folder: "Folder",
  startedAt: "Begun",
  agentPrompt: "What it is told",

  used: "Used so far",
  tokens: "Tokens",
  cost: "Cost",
  window: "Context",
  windowUsed: (read: number, window: number) => `${number(read)} of ${number(window)} tokens`,
  windowUnknown: (read: number) => `${count(read, "token")} read`,

  queue: "Waiting to be answered",
  changed: "Changed files",
  attached: "Attached files",
  none: "None.",
  unlisted: "Files that commands change are not listed.",
  onlyLoaded: "Of the messages that are loaded.",
  loadEarlier: "Load earlier ones",

  asked: "What was asked",
  when: "When",
  took: "Took",
  state: "State",
  states: {
    accepted: "about to begin", cancelled: "stopped", completed: "finished", failed: "failed", interrupted: "stopped with the server",
    queued: "queued", running: "under way", waiting: "waits for you",
  },
  steps: "Steps",
  fromMemory: "From memory",
  nothingFromMemory: "Nothing was brought from memory.",

  done: "finished",
  ms: (ms: number) => (ms < 1_000 ? `${ms} ms` : ms < 90_000 ? `${(ms / 1_000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`),
  previous: "Previous step",
  next: "Next step",
  askedWith: "Asked with",
  cut: "Its end, while it runs",
} as const;
