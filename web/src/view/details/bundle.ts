// What is fetched when details are first shown: these parts share code, and so come as one file.

export { ChangeList } from "../transcript/file_changes";
export { Output } from "../transcript/output";
export { Inspector } from "./inspector";
