// Written by `make types` from the server's declarations. Do not edit.

export interface ModelList {
  readonly models: readonly (UsedModel)[];
  readonly providers: readonly (ProviderTold)[];
}

export interface UsedModel {
  readonly name: string;
  readonly why: string;
  readonly in_use: boolean;
  readonly takes: readonly ("image" | "pdf" | "text")[];
  readonly takes_guessed: boolean;
}

export interface ProviderTold {
  readonly name: string;
  readonly label: string;
  readonly ready: boolean;
  readonly source: "environment" | "installed" | "none" | "port" | "settings";
  readonly base_url: string;
  readonly has_key: boolean;
  readonly key_from: string;
  readonly local: boolean;
  readonly default_url: string;
  readonly default_model: string;
  readonly models: readonly (ModelTold)[];
  readonly problem: string;
}

export interface ModelTold {
  readonly name: string;
  readonly window_tokens: number | null;
  readonly answer_tokens: number | null;
  readonly takes: readonly ("image" | "pdf" | "text")[];
  readonly price: PriceTold | null;
  readonly takes_guessed: boolean;
}

export interface PriceTold {
  readonly input: number;
  readonly output: number;
  readonly cached: number | null;
  readonly written: number | null;
}

export interface Me {
  readonly signed_in: boolean;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly browser: boolean;
}

export interface Entered {
  readonly signed_in: boolean;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly browser: boolean;
  readonly page_key: string;
}

export interface RuleList {
  readonly rules: readonly (Rule)[];
}

export interface Rule {
  readonly id: string;
  readonly tool: string;
  readonly pattern: string;
  readonly session_id: string | null;
  readonly created_at: number;
}

export interface TokenList {
  readonly tokens: readonly (TokenTold)[];
}

export interface TokenTold {
  readonly id: string;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly created_at: number;
  readonly last_used_at: number | null;
}

export interface TokenMade {
  readonly token: TokenTold;
  readonly secret: string;
}

export interface PasswordTold {
  readonly is_set: boolean;
  readonly set_at: number | null;
}

export interface SignInList {
  readonly sign_ins: readonly (SignInTold)[];
}

export interface SignInTold {
  readonly id: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly current: boolean;
}

export interface SettingList {
  readonly settings: readonly (SettingTold)[];
}

export interface SettingTold {
  readonly name: string;
  readonly value: string | number | readonly (string)[];
  readonly default: string;
  readonly help: string;
  readonly allowed: string;
  readonly source: "command line" | "default" | "environment" | "file";
  readonly changeable: boolean;
}

export interface Tried {
  readonly ok: boolean;
  readonly detail: string;
  readonly models: readonly (string)[];
}

export interface BackupList {
  readonly backups: readonly (BackupTold)[];
}

export interface BackupTold {
  readonly name: string;
  readonly size_bytes: number;
  readonly made_at: number;
  readonly restore: string;
}

export interface About {
  readonly version: string;
  readonly data: string;
  readonly durability: string;
  readonly sessions: number;
  readonly events: number;
  readonly store_bytes: number;
  readonly model: string;
  readonly why: string;
  readonly confinement: string;
  readonly unprotected: readonly (string)[];
  readonly addresses: readonly (string)[];
  readonly started_at: number;
  readonly uptime_s: number;
}

export interface ChannelList {
  readonly channels: readonly (ChannelTold)[];
}

export interface ChannelTold {
  readonly name: string;
  readonly connected: boolean;
  readonly fixed: boolean;
  readonly serving: boolean;
  readonly last_seen_at: number;
  readonly last_error: string;
  readonly last_error_at: number;
  readonly received: number;
  readonly waiting: number;
  readonly delivered: Readonly<Record<string, number>>;
  readonly undelivered: string;
  readonly undelivered_at: number;
}

export interface ChannelTried {
  readonly ok: boolean;
  readonly detail: string;
}

export interface StrangerList {
  readonly waiting: readonly (StrangerTold)[];
}

export interface StrangerTold {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly asked_at: number;
  readonly expires_at: number;
}

export interface SenderList {
  readonly senders: readonly (SenderTold)[];
}

export interface SenderTold {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly allowed_at: number;
}

export interface McpList {
  readonly servers: readonly (McpTold)[];
}

export interface McpTold {
  readonly name: string;
  readonly kind: "http" | "stdio";
  readonly state: "connecting" | "ready" | "stopped" | "waiting";
  readonly tools: readonly (string)[];
  readonly left_out: readonly (string)[];
  readonly last_error: string;
  readonly last_error_at: number;
  readonly ready_since: number;
  readonly retry_at: number;
  readonly connections: number;
  readonly calls: Readonly<Record<string, number>>;
}

export interface LocalTold {
  readonly name: string;
  readonly about: string;
  readonly state: "absent" | "failed" | "installed" | "installing";
  readonly running: boolean;
  readonly current: boolean;
  readonly percent: number;
  readonly done_bytes: number;
  readonly total_bytes: number;
  readonly problem: string;
}
