// Modules that load with the details. They share code, so they load as one file.

export { ChangeList } from "../transcript/file_changes";
export { OutputDialog as Output } from "../transcript/output";
export { Inspector } from "./inspector";
