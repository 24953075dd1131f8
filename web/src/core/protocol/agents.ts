// Written by `make types` from the server's declarations. Do not edit.

export interface AgentsTold {
  readonly agents: readonly (AgentTold)[];
  readonly errors: readonly (string)[];
  readonly tools: readonly (string)[];
}

export interface AgentTold {
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
  readonly agent: AgentTold;
  readonly text: string;
}

export interface AgentPrompt {
  readonly agent: string;
  readonly model: string;
  readonly instructions: string;
  readonly tools: readonly (ToolShown)[];
  readonly tokens: number;
  readonly window_tokens: number;
}

export interface ToolShown {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export interface PromptsTold {
  readonly prompts: readonly (PromptTold)[];
  readonly errors: readonly (string)[];
}

export interface PromptTold {
  readonly name: string;
  readonly about: string;
}
