// What is fetched when a setting or a model is first chosen: these parts share code, and so come as one file.

export { Choices } from "../composer/agent_model_form";
export { Settings } from "./settings_dialog";
