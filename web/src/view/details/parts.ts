// What is fetched when details are first shown: these parts share code, and so come as one file.

export { ChangeList } from "../changes";
export { Output } from "../output";
export { Inspector } from "./inspector";
