import asyncio, json
async def test_zz(fleet, dashboard):
    await fleet.start()
    print(fleet.instances)
    print(await fleet.ask("GET","/instances"), await fleet.ask("GET","/instances", at=1))
    await fleet.flow()
    await asyncio.sleep(5)
    print(await fleet.ask("GET","/fleet", at=1))
    for i in fleet.instances: print(i.process.log.read_text()[:3000])
    assert 0
