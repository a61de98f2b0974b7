-- What lua/discovered.lua asks of others, in a cluster: log and leases are in other slots, and their caller's matter.
local function note() end
local function drop_lease() end
