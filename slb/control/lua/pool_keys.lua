-- The keys of one pool: see keys.pool_keys. Of those that end in a colon the scripts read which there are; all lie in
-- one hash slot.
local INFLIGHT, HOLDERS, HELD = KEYS[1], KEYS[2], KEYS[3]
local TICKETS, CLASS, CLASSES = KEYS[4], KEYS[5], KEYS[6]
local VIEWS, GRANTS, NUMBER, EPOCH = KEYS[7], KEYS[8], KEYS[9], KEYS[11]
local LIVE, VIEW, LOADS = KEYS[12], KEYS[13], KEYS[14]
local LINE, LINES, HEADS = KEYS[15], KEYS[16], KEYS[17]
local GRANTED, GRANTED_OF, DYING, ROUND = KEYS[18], KEYS[19], KEYS[20], KEYS[21]
local VIRTUAL, OWED = ' ', '  '  -- fields of the classes' hash that can be no class: the virtual time; see serve_queue
local SEQUENCE, PUSHED, SILENT = 'seq', 'pushed', 'silent'  -- fields of a held hash that can be no member
local OWN = {[SEQUENCE] = true, [PUSHED] = true, [SILENT] = true}
