// What is read about agents: their list, their editor, and choosing one.

export const agents = {
  title: "Agents",
} as const;
