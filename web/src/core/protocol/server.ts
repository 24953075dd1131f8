// Written by `make types` from the server's declarations. Do not edit.

export interface AvailableModels {
  readonly models: readonly (ActiveModel)[];
  readonly providers: readonly (ModelProviderInfo)[];
}

export interface ActiveModel {
  readonly name: string;
  readonly why: string;
  readonly in_use: boolean;
  readonly takes: readonly ("image" | "pdf" | "text")[];
  readonly takes_guessed: boolean;
}

export interface ModelProviderInfo {
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
  readonly models: readonly (ModelInfo)[];
  readonly problem: string;
}

export interface ModelInfo {
  readonly name: string;
  readonly window_tokens: number | null;
  readonly answer_tokens: number | null;
  readonly takes: readonly ("image" | "pdf" | "text")[];
  readonly price: PriceInfo | null;
  readonly takes_guessed: boolean;
}

export interface PriceInfo {
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

export interface SignInResult {
  readonly signed_in: boolean;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly browser: boolean;
  readonly page_key: string;
}

export interface RuleList {
  readonly rules: readonly (RuleInfo)[];
}

export interface RuleInfo {
  readonly id: string;
  readonly tool: string;
  readonly pattern: string;
  readonly session_id: string | null;
  readonly created_at: number;
}

export interface TokenList {
  readonly tokens: readonly (TokenInfo)[];
}

export interface TokenInfo {
  readonly id: string;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly created_at: number;
  readonly last_used_at: number | null;
}

export interface TokenWithSecret {
  readonly token: TokenInfo;
  readonly secret: string;
}

export interface PasswordInfo {
  readonly is_set: boolean;
  readonly set_at: number | null;
}

export interface SignInList {
  readonly sign_ins: readonly (SignInInfo)[];
}

export interface SignInInfo {
  readonly id: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly current: boolean;
}

export interface SettingList {
  readonly settings: readonly (SettingInfo)[];
}

export interface SettingInfo {
  readonly name: string;
  readonly value: string | number | readonly (string)[];
  readonly default: string;
  readonly help: string;
  readonly allowed: string;
  readonly source: "command line" | "default" | "environment" | "file";
  readonly changeable: boolean;
}

export interface ConnectionTestResult {
  readonly ok: boolean;
  readonly detail: string;
  readonly models: readonly (string)[];
}

export interface BackupList {
  readonly backups: readonly (BackupInfo)[];
}

export interface BackupInfo {
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
  readonly channels: readonly (ChannelInfo)[];
}

export interface ChannelInfo {
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

export interface ChannelTestResult {
  readonly ok: boolean;
  readonly detail: string;
}

export interface UnknownSenderList {
  readonly waiting: readonly (PendingSenderInfo)[];
}

export interface PendingSenderInfo {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly asked_at: number;
  readonly expires_at: number;
}

export interface SenderList {
  readonly senders: readonly (SenderInfo)[];
}

export interface SenderInfo {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly allowed_at: number;
}

export interface McpList {
  readonly servers: readonly (McpServerInfo)[];
}

export interface McpServerInfo {
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

export interface LocalModelInfo {
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
