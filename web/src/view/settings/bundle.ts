// Modules that load with the settings or the model menu. They share code, so they load as one file.

export { AgentModelForm as Choices } from "../composer/agent_model_form";
export { Settings } from "./settings_dialog";
