// The form for a new session.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { type Schemas, json, post, sessionPath } from "../api/client";
import { go, href } from "../router";
import { reload } from "../state/overview";
import { Action, Dialog } from "../ui/parts";

const MODES: [string, string][] = [["", "Default: the agent asks"], ["plan", "Plan: changes nothing"], ["acceptEdits", "Edits are accepted, the rest is asked"], ["bypass", "Asks nothing; the policy still decides"]];

export function NewSession({ onClose }: { onClose: () => void }): JSX.Element {
  const [agents, setAgents] = useState<readonly Schemas["AgentInfo"][]>([]);
  const [form, setForm] = useState({ agent: "mock", title: "", directory: "", permissionMode: "", model: "", message: "" });
  useEffect(() => {
    json<Schemas["AgentList"]>("/v1/agents").then((page) => setAgents(page.agents), () => {});
  }, []);
  const set = (name: keyof typeof form) => (event: { currentTarget: { value: string } }) => setForm({ ...form, [name]: event.currentTarget.value });
  const start = async (): Promise<void> => {
    const id = crypto.randomUUID();
    const { message, agent, ...rest } = form;
    const filled = Object.fromEntries(Object.entries(rest).filter(([, value]) => value.trim() !== ""));
    await post(sessionPath(id), { agent, ...filled });
    if (message.trim() !== "") await post(sessionPath(id, "/messages"), { message });
    await reload();
    onClose();
    go(href(["s", id]));
  };
  return (
    <Dialog title="New session" onClose={onClose}>
      <label class="field">Agent
        <select value={form.agent} onChange={set("agent")}>
          {agents.map((agent) => <option key={agent.id} value={agent.id}>{agent.installed ? agent.id : `${agent.id} (is installed first)`}</option>)}
        </select>
      </label>
      <label class="field">First message
        <textarea rows={3} value={form.message} onInput={set("message")} />
      </label>
      <label class="field">Directory on the server <span class="muted">(empty: an empty workspace)</span>
        <input value={form.directory} onInput={set("directory")} />
      </label>
      <label class="field">Permissions
        <select value={form.permissionMode} onChange={set("permissionMode")}>{MODES.map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select>
      </label>
      <label class="field">Model <span class="muted">(empty: the default of the server)</span>
        <input value={form.model} onInput={set("model")} />
      </label>
      <label class="field">Title <span class="muted">(optional)</span>
        <input value={form.title} maxLength={1000} onInput={set("title")} />
      </label>
      <p class="muted small">The session gets the policy of the server, narrowed by the file sandbox.policy.yaml of its directory.</p>
      <div class="buttons"><Action kind="primary" run={start}>Start the session</Action></div>
    </Dialog>
  );
}
