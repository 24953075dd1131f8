// Written by `make types` from the server's declarations. Do not edit.

export interface AgentListing {
  readonly agents: readonly (AgentInfo)[];
  readonly errors: readonly (string)[];
  readonly tools: readonly (string)[];
}

export interface AgentInfo {
  readonly name: string;
  readonly description: string;
  readonly model: string;
  readonly fallbacks: readonly (string)[];
  readonly tools: readonly (string)[] | null;
  readonly approvals: "" | "allow" | "ask";
  readonly resume: "" | "ask" | "auto" | "never";
  readonly memory: "off" | "on";
  readonly workspace: string;
  readonly answers: boolean;
  readonly error: string;
  readonly digest: string;
  readonly unasked: readonly (string)[];
  readonly effort: "" | "high" | "low" | "medium";
  readonly stays: boolean;
}

export interface AgentText {
  readonly agent: AgentInfo;
  readonly text: string;
}

export interface AgentPrompt {
  readonly agent: string;
  readonly model: string;
  readonly instructions: string;
  readonly tools: readonly (ToolInfo)[];
  readonly tokens: number;
  readonly window_tokens: number;
}

export interface ToolInfo {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export interface PromptListing {
  readonly prompts: readonly (PromptInfo)[];
  readonly errors: readonly (string)[];
}

export interface PromptInfo {
  readonly name: string;
  readonly about: string;
}
