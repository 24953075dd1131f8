// What is fetched when a setting or a model is first chosen: these parts share code, and so come as one file.

export { Choices } from "../choices";
export { Settings } from "./sheet";
